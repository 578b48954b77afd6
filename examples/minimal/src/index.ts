// SPDX-License-Identifier: Apache-2.0
import { getSandbox, type Sandbox } from '@cloudflare/sandbox';

export { Sandbox } from '@cloudflare/sandbox';

interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { pathname } = new URL(request.url);
    const sandbox = getSandbox(env.Sandbox, 'demo');

    if (pathname === '/run') {
      const { stdout, exitCode, success } = await sandbox.exec('python3 -c "print(sum(range(101)))"');
      return Response.json({ output: stdout.trim(), exitCode, success });
    }

    if (pathname === '/file') {
      await sandbox.writeFile('/workspace/note.txt', `written at ${new Date().toISOString()}\n`);
      const { content } = await sandbox.readFile('/workspace/note.txt');
      return Response.json({ content });
    }

    return new Response('Try /run or /file.\n', { status: pathname === '/' ? 200 : 404 });
  },
};
