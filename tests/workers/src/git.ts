// SPDX-License-Identifier: Apache-2.0
// git.ts: cloning, from a repository that a server inside the sandbox offers over http.
import { area, equal, fails, includes, type Box } from './check';

const check = area('git');
const URL = 'http://127.0.0.1:8418/cgi-bin/serve/demo.git';

// Makes the repository and its server once; three commits, two branches.
export async function serveRepository(box: Box) {
  if ((await box.getProcess('git-server'))?.status === 'running') return URL;
  await box.mkdir('/srv/git/cgi-bin', { recursive: true });
  await box.writeFile('/srv/git/cgi-bin/serve', '#!/bin/sh\nGIT_PROJECT_ROOT=/srv/git GIT_HTTP_EXPORT_ALL=1 exec git http-backend\n');
  const made = await box.exec(`
    chmod 755 /srv/git/cgi-bin/serve
    git init -q --bare -b main /srv/git/demo.git && git clone -q /srv/git/demo.git /tmp/seed && cd /tmp/seed
    git config user.email demo@example.org && git config user.name Demo
    for i in 1 2 3; do echo "$i" >count && git add . && git commit -qm "commit $i"; done
    git checkout -qb feature && echo feature >only-here && git add . && git commit -qm feature
    git push -q origin main feature && cd /workspace`);
  equal(made.exitCode, 0, made.stderr);
  const server = await box.startProcess('exec python3 -m http.server --cgi --bind 127.0.0.1 8418', { processId: 'git-server', cwd: '/srv/git' });
  await server.waitForPort(8418, { mode: 'tcp', timeout: 30000, interval: 100 });
  return URL;
}

check('gitCheckout: the default branch', async ({ box, dir }) => {
  const r = await box.gitCheckout(await serveRepository(box), { targetDir: dir });
  equal([r.success, r.targetDir, r.branch, r.repoUrl], [true, dir, 'main', URL]);
  equal((await box.exec(`cat ${dir}/count; git -C ${dir} rev-list --count HEAD`)).stdout.trim(), '3\n3');
});

check('gitCheckout: a branch, shallow, with a limit', async ({ box, dir }) => {
  const r = await box.gitCheckout(await serveRepository(box), { branch: 'feature', targetDir: dir, depth: 1, cloneTimeoutMs: 60000 });
  equal(r.branch, 'feature');
  equal((await box.exec(`cat ${dir}/only-here; git -C ${dir} rev-list --count HEAD`)).stdout.trim(), 'feature\n1');
});

check('gitCheckout: the directory is named after the repository', async ({ box }) => {
  equal((await box.gitCheckout(await serveRepository(box))).targetDir, '/workspace/demo');
  equal((await box.readFile('/workspace/demo/count')).content.trim(), '3');
});

check('gitCheckout: errors', async ({ box, dir }) => {
  const url = await serveRepository(box);
  await fails(box.gitCheckout(url, { branch: 'no-such-branch', targetDir: dir }), 'Error', 'no-such-branch');
  await fails(box.gitCheckout(url.replace('8418', '8419'), { targetDir: dir }), 'Error');
  const error = await fails(box.gitCheckout(url, { depth: -1 }), 'Error');
  includes(error.message, 'depth');
});
