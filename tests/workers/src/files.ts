// SPDX-License-Identifier: Apache-2.0
// files.ts: reading, writing and arranging files.
import { collectFile, streamFile } from '@cloudflare/sandbox';
import { area, equal, fails, includes, ok, text } from './check';

const check = area('files');
const bytes = new Uint8Array(300_000).map((_, i) => (i * 7) % 256);
const base64 = (b: Uint8Array) => btoa(Array.from(b, (n) => String.fromCharCode(n)).join(''));

check('writeFile, readFile: text', async ({ box, dir }) => {
  await box.mkdir(dir);
  const written = await box.writeFile(`${dir}/a.txt`, 'Grüße\n世界 🌍');
  equal([written.success, written.path], [true, `${dir}/a.txt`]);
  const read = await box.readFile(`${dir}/a.txt`);
  equal([read.success, read.content, read.encoding], [true, 'Grüße\n世界 🌍', 'utf-8']);
  includes(read.mimeType, 'text/plain');
  equal(read.size, new TextEncoder().encode(read.content).length);
});

check('writeFile, readFile: bytes as base64', async ({ box, dir }) => {
  await box.mkdir(dir);
  await box.writeFile(`${dir}/b.bin`, base64(bytes), { encoding: 'base64' });
  const read = await box.readFile(`${dir}/b.bin`, { encoding: 'base64' });
  equal([read.encoding, read.isBinary, read.content === base64(bytes)], ['base64', true, true]);
});

check('writeFile: an empty file, and over an old one', async ({ box, dir }) => {
  await box.mkdir(dir);
  await box.writeFile(`${dir}/c`, 'long content');
  await box.writeFile(`${dir}/c`, '');
  equal((await box.readFile(`${dir}/c`)).content, '');
});

check('writeFile: from a stream', async ({ box, dir, transport }) => {
  await box.mkdir(dir);
  const stream = new Response(bytes).body!;
  if (transport !== 'rpc') return fails(box.writeFile(`${dir}/s`, stream), 'Error', 'rpc');
  await box.writeFile(`${dir}/s`, stream);
  equal((await box.exec(`stat -c %s ${dir}/s`)).stdout.trim(), String(bytes.length));
});

check('readFile: as a stream of bytes', async ({ box, dir, transport }) => {
  await box.mkdir(dir);
  await box.writeFile(`${dir}/s`, base64(bytes), { encoding: 'base64' });
  if (transport !== 'rpc') return fails(box.readFile(`${dir}/s`, { encoding: 'none' }), 'Error', 'rpc');
  const read = await box.readFile(`${dir}/s`, { encoding: 'none' });
  const content = new Uint8Array(await new Response(read.content).arrayBuffer());
  equal(base64(content) === base64(bytes), true);
});

check('readFileStream: collected and in pieces', async ({ box, dir }) => {
  await box.mkdir(dir);
  await box.writeFile(`${dir}/big.bin`, base64(bytes), { encoding: 'base64' });
  const { content, metadata } = await collectFile(await box.readFileStream(`${dir}/big.bin`));
  ok(content instanceof Uint8Array && base64(content) === base64(bytes), 'the bytes that were written');
  equal([metadata.size, metadata.isBinary], [bytes.length, true]);
  await box.writeFile(`${dir}/t.txt`, 'line\n'.repeat(50000));
  let all = '';
  for await (const piece of streamFile(await box.readFileStream(`${dir}/t.txt`))) all += piece;
  equal(all === 'line\n'.repeat(50000), true);
});

check('mkdir: one, many, and one that is there', async ({ box, dir }) => {
  equal((await box.mkdir(dir)).success, true);
  await fails(box.mkdir(dir), 'Error', 'exists');
  equal((await box.mkdir(`${dir}/a/b/c`, { recursive: true })).path, `${dir}/a/b/c`);
  equal((await box.exists(`${dir}/a/b/c`)).exists, true);
  await fails(box.mkdir(`${dir}/x/y`), 'Error');
});

check('exists', async ({ box, dir }) => {
  await box.mkdir(dir);
  equal((await box.exists(dir)).exists, true);
  equal((await box.exists(`${dir}/nothing`)).exists, false);
});

check('renameFile, moveFile, deleteFile', async ({ box, dir }) => {
  await box.mkdir(`${dir}/sub`, { recursive: true });
  await box.writeFile(`${dir}/one`, '1');
  equal((await box.renameFile(`${dir}/one`, `${dir}/two`)).newPath, `${dir}/two`);
  equal((await box.moveFile(`${dir}/two`, `${dir}/sub/three`)).newPath, `${dir}/sub/three`);
  equal((await box.readFile(`${dir}/sub/three`)).content, '1');
  equal((await box.deleteFile(`${dir}/sub/three`)).success, true);
  equal((await box.exists(`${dir}/sub/three`)).exists, false);
});

check('listFiles: flat, deep, hidden', async ({ box, dir }) => {
  await box.mkdir(`${dir}/deep`, { recursive: true });
  await Promise.all(['a.txt', '.secret', 'deep/b.txt'].map((f) => box.writeFile(`${dir}/${f}`, f)));
  const names = async (options?: object) => (await box.listFiles(dir, options)).files.map((f) => f.relativePath).sort();
  equal(await names(), ['a.txt', 'deep']);
  equal(await names({ includeHidden: true }), ['.secret', 'a.txt', 'deep']);
  equal(await names({ recursive: true }), ['a.txt', 'deep', 'deep/b.txt']);
  const [file] = (await box.listFiles(dir)).files.filter((f) => f.name === 'a.txt');
  equal([file.type, file.size, file.absolutePath, file.mode], ['file', 5, `${dir}/a.txt`, 'rw-r--r--']);
});

check('errors have their names', async ({ box, dir }) => {
  await box.mkdir(dir);
  await fails(box.readFile(`${dir}/none`), 'FileNotFoundError', 'none');
  await fails(collectFile(await box.readFileStream(`${dir}/none`)), 'Error', 'none');
  await fails(box.deleteFile(`${dir}/none`), 'FileNotFoundError', dir);
  await fails(box.moveFile(`${dir}/none`, `${dir}/other`), 'FileNotFoundError');
  await fails(box.listFiles(`${dir}/none`), 'FileNotFoundError', 'none');
  await fails(box.readFile(dir), 'Error');
});

check('what commands write is what readFile reads', async ({ box, dir }) => {
  await box.exec(`mkdir -p ${dir} && cd ${dir} && printf 'x%.0s' $(seq 1000) >x && cd -`);
  equal((await box.readFile(`${dir}/x`)).content.length, 1000);
  includes(await text(await box.readFileStream(`${dir}/x`)), 'xxx');
});
