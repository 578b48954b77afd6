// SPDX-License-Identifier: Apache-2.0
// commands.ts: exec and execStream.
import { parseSSEStream, type ExecEvent } from '@cloudflare/sandbox';
import { area, equal, fails, includes, ok, until } from './check';

const check = area('commands');

check('exec: output, error output and exit code', async ({ box }) => {
  const r = await box.exec('echo out; echo err >&2; (exit 3)');
  equal([r.success, r.exitCode, r.stdout.trim(), r.stderr.trim()], [false, 3, 'out', 'err']);
  equal(r.command, 'echo out; echo err >&2; (exit 3)');
  ok(r.duration >= 0 && !Number.isNaN(Date.parse(r.timestamp)), 'duration and timestamp');
  equal((await box.exec('true')).success, true);
});

check('exec: the image is the one of the Dockerfile', async ({ box }) => {
  equal((await box.exec('greet reader; echo $PROOF_IMAGE')).stdout.trim(), 'greetings, reader\nbuilt');
});

check('exec: environment and directory of one command', async ({ box }) => {
  const r = await box.exec('echo $WORD; pwd', { env: { WORD: "it's $5", GONE: undefined }, cwd: '/tmp' });
  equal(r.stdout.trim(), "it's $5\n/tmp");
  equal((await box.exec('echo "[$WORD]"; pwd')).stdout.trim(), '[]\n/workspace');
});

check('exec: the default session remembers', async ({ box, dir }) => {
  await box.exec(`mkdir -p ${dir} && cd ${dir} && export KEPT=yes && f() { echo from f; }`);
  equal((await box.exec('pwd; echo $KEPT; f')).stdout.trim(), `${dir}\nyes\nfrom f`);
  await box.exec('cd /workspace; unset KEPT');
});

check('exec: a limit of time', async ({ box }) => {
  await fails(box.exec('sleep 1', { timeout: 300 }), 'Error', '300');
  equal((await box.exec('echo still there')).stdout.trim(), 'still there');
});

check('exec: a signal aborted before it begins', async ({ box }) => {
  const controller = new AbortController();
  controller.abort();
  await fails(box.exec('echo never', { signal: controller.signal }), 'Error');
});

check('exec: output as it comes, by callbacks', async ({ box }) => {
  const seen: string[] = [];
  let complete: unknown;
  const r = await box.exec('echo one; sleep 1; echo two >&2; exit 4', {
    stream: true,
    onOutput: (stream, data) => void seen.push(`${stream}:${data.trim()}`),
    onComplete: (result) => void (complete = result.exitCode),
  });
  equal(seen, ['stdout:one', 'stderr:two']);
  equal([r.exitCode, r.stdout.trim()], [4, 'one']);
  await until('onComplete', async () => complete === 4);
});

check('exec: five megabytes, nothing lost', async ({ box }) => {
  const r = await box.exec('seq 1 700000');
  ok(r.stdout.length > 4_700_000, `only ${r.stdout.length} characters`);
  equal(r.stdout.trim().split('\n').at(-1), '700000');
});

check('exec: any text', async ({ box }) => {
  equal((await box.exec("printf '%s' 'Grüße, 世界 🌍'")).stdout, 'Grüße, 世界 🌍');
  equal((await box.exec("cat <<'END'\n$HOME `x` \"q\"\nEND")).stdout.trim(), '$HOME `x` "q"');
});

check('exec: many at once', async ({ box }) => {
  const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => box.exec(`echo ${i}`)));
  equal(answers.map((r) => Number(r.stdout)), Array.from({ length: 20 }, (_, i) => i));
});

check('exec: without a session nothing is remembered', async ({ other }) => {
  const box = other('plain', { enableDefaultSession: false });
  try {
    await box.exec('cd /tmp; export LOST=1');
    equal((await box.exec('pwd; echo "[$LOST]"')).stdout.trim(), '/workspace\n[]');
    const r = await box.exec('sleep 20', { timeout: 200 });
    equal(r.exitCode, 124);
  } finally {
    await box.destroy();
  }
});

check('execStream: events in order', async ({ box }) => {
  const events: ExecEvent[] = [];
  for await (const e of parseSSEStream<ExecEvent>(await box.execStream('echo a; echo b >&2; exit 5', { env: { A: '1' } }))) events.push(e);
  equal(events[0].type, 'start');
  const data = (type: string) => events.filter((e) => e.type === type).map((e) => e.data).join('').trim();
  equal([data('stdout'), data('stderr')], ['a', 'b']);
  equal([events.at(-1)!.type, events.at(-1)!.exitCode], ['complete', 5]);
});

check('execStream: a large output arrives whole', async ({ box }) => {
  let size = 0;
  let last: ExecEvent | undefined;
  for await (const e of parseSSEStream<ExecEvent>(await box.execStream('head -c 5999999 /dev/zero | tr "\\0" x; echo'))) {
    if (e.type === 'stdout') size += e.data!.length;
    last = e;
  }
  equal([size, last?.type], [6_000_000, 'complete']);
});

check('execStream: a stream that is given up ends its command', async ({ box }) => {
  const stream = await box.execStream('echo begun; exec sleep 987654');
  const reader = stream.getReader();
  let seen = '';
  while (!seen.includes('begun')) seen += new TextDecoder().decode((await reader.read()).value);
  await reader.cancel();
  equal((await box.exec('echo free', { timeout: 20000 })).stdout.trim(), 'free');
  includes(seen, 'begun');
});
