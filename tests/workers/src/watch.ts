// SPDX-License-Identifier: Apache-2.0
// watch.ts: changes of files, live and afterwards.
import { parseSSEStream, type FileWatchSSEEvent } from '@cloudflare/sandbox';
import { area, equal, fails, ok } from './check';

const check = area('watch');

// Reads events until one of each wanted "type path" has come.
async function expect(stream: ReadableStream<Uint8Array>, wanted: string[]) {
  const missing = new Set(wanted);
  const seen: string[] = [];
  for await (const e of parseSSEStream<FileWatchSSEEvent>(stream)) {
    if (e.type !== 'event') continue;
    seen.push(`${e.eventType} ${e.path}`);
    missing.delete(seen.at(-1)!);
    if (missing.size === 0) return seen;
  }
  throw new Error(`the stream ended without ${[...missing]}; seen: ${seen}`);
}

check('watch: create, modify, move, delete', async ({ box, dir }) => {
  await box.mkdir(`${dir}/sub`, { recursive: true });
  const stream = await box.watch(dir);
  await box.writeFile(`${dir}/sub/new`, 'x');
  await box.exec(`echo more >>${dir}/sub/new; mv ${dir}/sub/new ${dir}/moved; rm ${dir}/moved`);
  await expect(stream, [
    `create ${dir}/sub/new`, `modify ${dir}/sub/new`, `move_from ${dir}/sub/new`, `move_to ${dir}/moved`, `delete ${dir}/moved`,
  ]);
});

check('watch: begins with "watching"', async ({ box, dir }) => {
  await box.mkdir(dir);
  for await (const e of parseSSEStream<FileWatchSSEEvent>(await box.watch(dir))) {
    equal([e.type, e.type === 'watching' && e.path], ['watching', dir]);
    break;
  }
});

check('watch: only what is included', async ({ box, dir }) => {
  await box.mkdir(dir);
  const stream = await box.watch(dir, { include: ['*.ts'], recursive: false });
  await box.exec(`touch ${dir}/a.js ${dir}/b.ts`);
  ok((await expect(stream, [`create ${dir}/b.ts`])).every((s) => s.endsWith('.ts')), 'only .ts');
});

check('watch: not what is excluded', async ({ box, dir }) => {
  await box.mkdir(`${dir}/skip`, { recursive: true });
  const stream = await box.watch(dir, { exclude: ['skip'] });
  await box.exec(`touch ${dir}/skip/a ${dir}/b`);
  ok((await expect(stream, [`create ${dir}/b`])).every((s) => !s.includes('/skip')), 'nothing of skip');
});

check('watch: a path that is not there', async ({ box, dir }) => {
  await fails(box.watch(`${dir}/none`), 'Error');
});

check('checkChanges', async ({ box, dir }) => {
  await box.mkdir(dir);
  const first = await box.checkChanges(dir);
  equal(first.success, true);
  equal((await box.checkChanges(dir, { since: first.version })).status, 'unchanged');
  await box.writeFile(`${dir}/a`, 'a');
  const second = await box.checkChanges(dir, { since: first.version });
  equal(second.status, 'changed');
  equal((await box.checkChanges(dir, { since: second.version })).status, 'unchanged');
  await fails(box.checkChanges(dir, { since: 'no version' }), 'Error', 'since');
});
