// SPDX-License-Identifier: Apache-2.0
// processes.ts: programs in the background and the helpers that wait for them.
import { parseSSEStream, type LogEvent } from '@cloudflare/sandbox';
import { area, equal, fails, includes, ok, text, until } from './check';

const check = area('processes');

check('startProcess: a record, a status, an exit code', async ({ box }) => {
  const p = await box.startProcess('echo hello; exit 6', { processId: 'six', env: { A: '1' }, cwd: '/tmp', autoCleanup: false });
  equal(p.id, 'six');
  ok(p.pid! > 0 && p.command === 'echo hello; exit 6', 'pid and command');
  equal((await p.waitForExit(20000)).exitCode, 6);
  const again = await box.getProcess('six');
  equal([again?.status, again?.exitCode], ['failed', 6]);
  equal(await p.getStatus(), 'failed');
  equal((await p.getLogs()).stdout.trim(), 'hello');
});

check('startProcess: callbacks', async ({ box }) => {
  const seen = await box.processCallbacks('echo to out; echo to err >&2; exit 2');
  equal([seen[0], seen.at(-1)], ['start number', 'exit 2']);
  equal(seen.slice(1, -1).sort(), ['stderr to err', 'stdout to out']);
});

check('listProcesses, getProcess', async ({ box }) => {
  await box.startProcess('sleep 300', { processId: 'listed' });
  const found = (await box.listProcesses()).find((p) => p.id === 'listed');
  equal([found?.status, found?.command], ['running', 'sleep 300']);
  ok(found!.startTime instanceof Date, 'startTime is a date');
  equal(await box.getProcess('nobody'), null);
  await box.killProcess('listed');
});

check('killProcess: the whole tree goes', async ({ box }) => {
  await box.startProcess('sleep 31415 & sleep 31415; wait', { processId: 'tree' });
  await until('both children', async () => (await box.exec('pgrep -fc "^sleep 31415"')).stdout.trim() === '2');
  await box.killProcess('tree', 'SIGTERM');
  await until('no child', async () => (await box.exec('pgrep -fc "^sleep 31415"')).stdout.trim() === '0');
  await until('its end', async () => (await box.getProcess('tree'))?.status === 'killed');
  await fails(box.killProcess('nobody'), 'ProcessNotFoundError');
});

check('process.kill', async ({ box }) => {
  const p = await box.startProcess('sleep 300');
  await p.kill();
  await until('its end', async () => (await p.getStatus()) === 'killed');
});

check('killAllProcesses, cleanupCompletedProcesses', async ({ other }) => {
  const box = other('all');
  try {
    await Promise.all([1, 2, 3].map(() => box.startProcess('sleep 300')));
    equal(await box.killAllProcesses(), 3);
    await until('the end of all', async () => (await box.listProcesses()).every((p) => p.status !== 'running'));
    equal(await box.cleanupCompletedProcesses(), 0); // this client leaves cleaning to the server
  } finally {
    await box.destroy();
  }
});

check('getProcessLogs, streamProcessLogs', async ({ box }) => {
  const p = await box.startProcess('for i in 1 2 3; do echo line $i; done; echo problem >&2', { processId: 'logs' });
  await p.waitForExit(20000);
  const logs = await box.getProcessLogs('logs');
  equal([logs.stdout.trim(), logs.stderr.trim(), logs.processId], ['line 1\nline 2\nline 3', 'problem', 'logs']);
  const events: LogEvent[] = [];
  for await (const e of parseSSEStream<LogEvent>(await box.streamProcessLogs('logs'))) events.push(e);
  includes(events.filter((e) => e.type === 'stdout').map((e) => e.data).join(''), 'line 3');
  equal([events.at(-1)!.type, events.at(-1)!.exitCode], ['exit', 0]);
  await fails(box.getProcessLogs('nobody'), 'ProcessNotFoundError');
});

check('streamProcessLogs: follows what still runs', async ({ box }) => {
  await box.startProcess('until [ -e /tmp/go ]; do sleep 0.05; done; echo went', { processId: 'follow' });
  const stream = await box.streamProcessLogs('follow');
  await box.exec('touch /tmp/go');
  includes(await text(stream), 'went');
});

check('waitForLog: text, pattern, and what was already said', async ({ box }) => {
  const p = await box.startProcess('echo starting; sleep 0.3; echo "listening on port 4567"; exec sleep 300');
  equal((await p.waitForLog('starting', 20000)).line, 'starting');
  const found = await p.waitForLog(/port (\d+)/, 20000);
  equal([found.line, found.match?.[1]], ['listening on port 4567', '4567']);
  equal((await p.waitForLog('starting', 20000)).line, 'starting');
  await fails(p.waitForLog('never said', 300), 'ProcessReadyTimeoutError');
  await p.kill();
});

check('waitForLog: the process ends first', async ({ box }) => {
  const p = await box.startProcess('echo bye; exit 9');
  await fails(p.waitForLog('never said', 20000), 'ProcessExitedBeforeReadyError');
});

check('waitForPort: http, a status, tcp', async ({ box }) => {
  const p = await box.startProcess('sleep 0.3; exec python3 -m http.server 8123 --bind 127.0.0.1', { cwd: '/usr/share' });
  await p.waitForPort(8123, { timeout: 30000, interval: 100 });
  await p.waitForPort(8123, { path: '/missing', status: 404, timeout: 30000 });
  await p.waitForPort(8123, { mode: 'tcp', timeout: 30000 });
  await fails(p.waitForPort(8124, { mode: 'tcp', timeout: 500, interval: 100 }), 'ProcessReadyTimeoutError');
  await p.kill();
});

check('waitForPort: the process ends first', async ({ box }) => {
  const p = await box.startProcess('sleep 0.2; exit 3');
  await fails(p.waitForPort(8125, { timeout: 20000, interval: 100 }), 'ProcessExitedBeforeReadyError');
});

check('waitForExit: a limit of time', async ({ box }) => {
  const p = await box.startProcess('sleep 300');
  await fails(p.waitForExit(300), 'ProcessReadyTimeoutError');
  await p.kill();
});
