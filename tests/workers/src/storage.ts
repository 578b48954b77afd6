// SPDX-License-Identifier: Apache-2.0
// storage.ts: buckets of the Worker as directories, and backups of directories in a bucket.
import { area, equal, fails, includes, ok, until } from './check';

const check = area('storage');

check('mountBucket: both ways', async ({ box, env, transport }) => {
  const prefix = `${transport}/`;
  await env.FILES.put(`${prefix}in.txt`, 'into the sandbox');
  await box.mountBucket('FILES', '/workspace/files', { localBucket: true, prefix: `/${transport}` });
  equal((await box.readFile('/workspace/files/in.txt')).content, 'into the sandbox');
  await until('the object', async () => {
    await box.exec('echo out of it >/workspace/files/out.txt'); // again: the client begins to watch after mountBucket has returned
    return env.FILES.head(`${prefix}out.txt`);
  });
  equal((await (await env.FILES.get(`${prefix}out.txt`))!.text()).trim(), 'out of it');
  await fails(box.mountBucket('FILES', '/workspace/files', { localBucket: true }), 'Error');
  await box.unmountBucket('/workspace/files');
});

check('mountBucket: without localBucket it wants FUSE, which a sandbox has not', async ({ box }) => {
  await fails(box.mountBucket('FILES', '/mnt/bucket', {}), 'S3FSMountError', 'fuse');
  equal((await box.exec('mountpoint -q /mnt/bucket')).success, false);
});

check('mountBucket: what is refused', async ({ box }) => {
  await fails(box.mountBucket('NOT_BOUND', '/mnt/x', { localBucket: true }), 'Error', 'NOT_BOUND');
  await fails(box.mountBucket('FILES', 'relative', { localBucket: true }), 'Error');
});

check('createBackup, restoreBackup', async ({ box, dir }) => {
  await box.exec(`mkdir -p ${dir}/sub && echo one >${dir}/a && echo two >${dir}/sub/b && echo no >${dir}/skip.log`);
  const backup = await box.createBackup({ dir, name: 'first', localBucket: true, excludes: ['*.log'] });
  ok(backup.id.length > 0, 'an id');
  await box.exec(`rm -rf ${dir} && mkdir ${dir} && echo later >${dir}/later`);
  const restored = await box.restoreBackup(backup);
  equal([restored.success, restored.dir, restored.id], [true, dir, backup.id]);
  equal((await box.exec(`cd ${dir} && cat a sub/b; ls skip.log 2>&1; cd /workspace`)).stdout.split('\n').slice(0, 2), ['one', 'two']);
  equal((await box.exists(`${dir}/skip.log`)).exists, false);
});

check('restoreBackup: into another sandbox', async ({ box, dir, other }) => {
  await box.exec(`mkdir -p ${dir} && echo travels >${dir}/file`);
  const backup = await box.createBackup({ dir, localBucket: true });
  const second = other('second');
  try {
    await second.restoreBackup(backup);
    includes((await second.readFile(`${dir}/file`)).content, 'travels');
  } finally {
    await second.destroy();
  }
});

check('restoreBackup: what is not there', async ({ box }) => {
  await fails(box.restoreBackup({ id: crypto.randomUUID(), dir: '/workspace/x', localBucket: true }), 'BackupNotFoundError');
  await fails(box.createBackup({ dir: '/etc', localBucket: true }), 'Error');
});
