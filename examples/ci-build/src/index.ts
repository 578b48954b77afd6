// SPDX-License-Identifier: Apache-2.0
// POST /builds {"repository", "commit", "command"?, "output"?}: builds a commit in a sandbox named after it and keeps the result
// and the log in a bucket; the same build a second time is answered from there. GET /builds/KEY/artifact, /builds/KEY/log.
import { collectFile, getSandbox, type Sandbox } from '@cloudflare/sandbox';

export { Sandbox } from '@cloudflare/sandbox';

interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
  ARTIFACTS: R2Bucket;
}

interface Order {
  repository: string;
  commit: string;
  command?: string;
  output?: string;
}

const SOURCE = '/workspace/source';

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const [, root, key, what] = new URL(request.url).pathname.split('/');
    if (root === 'builds' && request.method === 'GET' && key && (what === 'artifact' || what === 'log')) {
      const object = await env.ARTIFACTS.get(`${key}/${what}`);
      if (!object) return Response.json({ error: 'there is no such build' }, { status: 404 });
      return new Response(object.body, { headers: { 'content-type': what === 'log' ? 'text/plain' : 'application/gzip' } });
    }
    if (root !== 'builds' || request.method !== 'POST') return new Response('POST /builds\n', { status: 404 });

    const order = (await request.json().catch(() => ({}))) as Partial<Order>;
    if (!order.repository || !URL.canParse(order.repository)) return Response.json({ error: 'repository must be a URL' }, { status: 400 });
    if (!/^[0-9a-f]{7,40}$/.test(order.commit ?? '')) return Response.json({ error: 'commit must be a hash' }, { status: 400 });
    return build(order as Order, env);
  },
};

async function build({ repository, commit, command = 'npm run build', output = 'dist' }: Order, env: Env): Promise<Response> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(JSON.stringify([repository, commit, command, output])));
  const key = Array.from(new Uint8Array(digest).slice(0, 12), (byte) => byte.toString(16).padStart(2, '0')).join('');
  const links = { key, artifact: `/builds/${key}/artifact`, log: `/builds/${key}/log` };
  if (await env.ARTIFACTS.head(`${key}/artifact`)) return Response.json({ ...links, success: true, cached: true });

  const sandbox = getSandbox(env.Sandbox, `build-${key}`);
  try {
    let log = '';
    await sandbox.gitCheckout(repository, { targetDir: SOURCE });
    const prepare = ['git checkout -q "$COMMIT"', '[ ! -f package.json ] || npm install --no-audit --no-fund'];
    for (const step of [...prepare, command, 'tar -czf /workspace/artifact.tgz "$OUTPUT"']) {
      // A shell of its own for each step: one that says "exit" must not take the session along.
      const { stdout, stderr, exitCode } = await sandbox.exec('bash -c "$STEP"', { cwd: SOURCE, env: { STEP: step, COMMIT: commit, OUTPUT: output } });
      log += `$ ${step}\n${stdout}\n${stderr}\n`;
      if (exitCode === 0) continue;
      await env.ARTIFACTS.put(`${key}/log`, log);
      return Response.json({ ...links, artifact: null, success: false, failed: step, exitCode, output: stderr || stdout }, { status: 422 });
    }
    const { content } = await collectFile(await sandbox.readFileStream('/workspace/artifact.tgz'));
    await env.ARTIFACTS.put(`${key}/log`, log);
    await env.ARTIFACTS.put(`${key}/artifact`, content);
    return Response.json({ ...links, success: true, cached: false });
  } finally {
    await sandbox.destroy();
  }
}
