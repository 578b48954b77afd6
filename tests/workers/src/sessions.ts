// SPDX-License-Identifier: Apache-2.0
// sessions.ts: sessions of one sandbox, and that each of their methods works in the session.
import { collectFile, parseSSEStream, type ExecEvent } from '@cloudflare/sandbox';
import { area, equal, fails, includes, ok, text } from './check';
import { serveRepository } from './git';

const check = area('sessions');

check('createSession: its own directory and variables', async ({ box }) => {
  const [a, b] = await Promise.all([
    box.createSession({ id: 'a', env: { WHO: 'a', NOT: undefined }, cwd: '/tmp' }),
    box.createSession({ id: 'b', env: { WHO: 'b' } }),
  ]);
  await a.exec('export EXTRA=1; cd /usr');
  equal((await a.exec('echo $WHO $EXTRA; pwd')).stdout.trim(), 'a 1\n/usr');
  equal((await b.exec('echo $WHO "[$EXTRA]"; pwd')).stdout.trim(), 'b []\n/workspace');
  equal((await box.exec('echo "[$WHO]"')).stdout.trim(), '[]');
  await fails(box.createSession({ id: 'a' }), 'SessionAlreadyExistsError');
});

check('createSession: a name of its own', async ({ box }) => {
  const s = await box.createSession();
  ok(s.id.length > 0, 'an id');
  equal((await s.exec('echo here')).stdout.trim(), 'here');
});

check('getSession: the same shell again', async ({ box }) => {
  const s = await box.createSession({ id: 'again' });
  await s.exec('KEPT=42; cd /var');
  equal((await (await box.getSession('again')).exec('echo $KEPT; pwd')).stdout.trim(), '42\n/var');
});

check('deleteSession', async ({ box }) => {
  await box.createSession({ id: 'short' });
  const r = await box.deleteSession('short');
  equal([r.success, r.sessionId], [true, 'short']);
  await box.createSession({ id: 'short' }); // the name is free again
});

check('a session that leaves its shell', async ({ box }) => {
  const s = await box.createSession({ id: 'leaver' });
  await fails(s.exec('exit 7'), 'SessionTerminatedError');
  equal((await s.exec('echo back')).stdout.trim(), 'back');
});

check('a limit of time for all of its commands', async ({ box }) => {
  const s = await box.createSession({ commandTimeoutMs: 300 });
  await fails(s.exec('sleep 1'), 'Error', '300');
});

check('sessions run at the same time', async ({ box }) => {
  const [a, b] = await Promise.all([box.createSession(), box.createSession({ id: `second-${Date.now()}` })]);
  await Promise.all([
    a.exec('rm -f /tmp/x /tmp/y; mkfifo /tmp/x; mkfifo /tmp/y').then(() => a.exec('touch /tmp/ready; echo from a >/tmp/x; cat /tmp/y')),
    b.exec('until [ -e /tmp/ready ]; do sleep 0.05; done; cat /tmp/x; echo from b >/tmp/y'),
  ]).then(([x, y]) => equal([x.stdout.trim(), y.stdout.trim()], ['from b', 'from a']));
});

check('methods: commands', async ({ box, dir }) => {
  await box.mkdir(dir);
  const s = await box.createSession({ id: 'commands', cwd: dir, env: { WORD: 'w' } });
  let last: ExecEvent | undefined;
  let out = '';
  for await (const e of parseSSEStream<ExecEvent>(await s.execStream('echo $WORD; pwd'))) {
    if (e.type === 'stdout') out += e.data;
    last = e;
  }
  equal([out.trim(), last?.exitCode], [`w\n${dir}`, 0]);
  await s.setEnvVars({ WORD: 'changed' });
  equal((await s.exec('echo $WORD')).stdout.trim(), 'changed');
});

check('methods: processes', async ({ box }) => {
  const s = await box.createSession({ id: 'processes', env: { WORD: 'w' } });
  const p = await s.startProcess('echo $WORD; exec sleep 300', { processId: 'of-session' });
  await p.waitForLog('w', 20000);
  equal((await s.getProcessLogs('of-session')).stdout.trim(), 'w');
  ok((await s.listProcesses()).some((q) => q.id === 'of-session'), 'listed');
  equal((await s.getProcess('of-session'))?.status, 'running');
  const stream = await s.streamProcessLogs('of-session');
  await s.killProcess('of-session');
  includes(await text(stream), 'exit');
  await s.startProcess('sleep 300');
  ok((await s.killAllProcesses()) >= 1, 'one killed');
  equal(await s.cleanupCompletedProcesses(), 0);
});

check('methods: files', async ({ box, dir }) => {
  await box.mkdir(dir);
  const s = await box.createSession({ id: 'files', cwd: dir });
  await s.mkdir(`${dir}/sub`);
  await s.writeFile(`${dir}/a`, 'text');
  equal((await s.readFile(`${dir}/a`)).content, 'text');
  equal((await collectFile(await s.readFileStream(`${dir}/a`))).content, 'text');
  await s.renameFile(`${dir}/a`, `${dir}/b`);
  await s.moveFile(`${dir}/b`, `${dir}/sub/c`);
  equal((await s.listFiles(`${dir}/sub`)).files.map((f) => f.name), ['c']);
  await s.deleteFile(`${dir}/sub/c`);
  equal((await s.exists(`${dir}/sub/c`)).exists, false);
  const before = await s.checkChanges(dir);
  const events = await s.watch(dir);
  await s.writeFile(`${dir}/d`, 'd');
  for await (const e of parseSSEStream<{ type: string; eventType?: string }>(events)) if (e.eventType === 'create') break;
  equal((await s.checkChanges(dir, { since: before.version })).status, 'changed');
});

check('methods: git', async ({ box, dir }) => {
  const url = await serveRepository(box);
  const s = await box.createSession({ id: 'git' });
  equal((await s.gitCheckout(url, { targetDir: dir, depth: 1 })).success, true);
});

check('methods: code', async ({ box }) => {
  const s = await box.createSession({ id: 'code' });
  const context = await s.createCodeContext({ language: 'python' });
  equal((await s.runCode('21 * 2', { context })).results[0].text, '42');
  let said = '';
  for await (const e of parseSSEStream<{ type: string; text?: string }>(await s.runCodeStream('print("streamed")', { context }))) said += e.text ?? '';
  includes(said, 'streamed');
  ok((await s.listCodeContexts()).some((c) => c.id === context.id), 'listed');
  await s.deleteCodeContext(context.id);
});

check('methods: storage', async ({ box, env }) => {
  const s = await box.createSession({ id: 'storage' });
  await env.FILES.put('session/hello.txt', 'from the bucket');
  await s.mountBucket('FILES', '/workspace/of-session', { localBucket: true, prefix: '/session' });
  equal((await s.readFile('/workspace/of-session/hello.txt')).content, 'from the bucket');
  await s.unmountBucket('/workspace/of-session');
  await s.exec('mkdir -p /workspace/saved && echo kept >/workspace/saved/file');
  const backup = await s.createBackup({ dir: '/workspace/saved', localBucket: true });
  await s.exec('rm -rf /workspace/saved');
  equal((await s.restoreBackup(backup)).success, true);
  equal((await s.readFile('/workspace/saved/file')).content.trim(), 'kept');
});
