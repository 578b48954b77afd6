// SPDX-License-Identifier: Apache-2.0
// A computer for each user, by the header X-User: what one request leaves behind the next one finds.
//   POST /exec {"command"}          in the user's shell: directory and variables stay
//   GET, PUT, DELETE /files/PATH    below /workspace
//   GET /files                      a list
//   POST /serve {"command", "port"} starts a server and answers with the URL of its preview
//   DELETE /                        everything goes
import { getSandbox, proxyToSandbox, type Sandbox } from '@cloudflare/sandbox';

export { Sandbox } from '@cloudflare/sandbox';

interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const preview = await proxyToSandbox(request, env);
    if (preview) return preview;

    const user = request.headers.get('x-user') ?? '';
    if (!/^[a-z0-9]{1,20}$/.test(user)) return Response.json({ error: 'X-User must be a name of letters and digits' }, { status: 401 });
    const sandbox = getSandbox(env.Sandbox, `user-${user}`, { sleepAfter: '30m' });
    try {
      return await route(request, sandbox);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      return Response.json({ error: message }, { status: message.includes('FileNotFoundError') ? 404 : 500 });
    }
  },
};

async function route(request: Request, sandbox: Sandbox): Promise<Response> {
  const url = new URL(request.url);
  const path = decodeURIComponent(url.pathname);
  const verb = `${request.method} ${path.split('/').slice(0, 2).join('/')}`;

  if (verb === 'POST /exec') {
    const { command } = (await request.json()) as { command: string };
    const { stdout, stderr, exitCode } = await sandbox.exec(command);
    return Response.json({ stdout, stderr, exitCode });
  }
  if (verb === 'POST /serve') {
    const { command, port } = (await request.json()) as { command: string; port: number };
    const server = await sandbox.startProcess(command);
    await server.waitForPort(port, { mode: 'tcp', timeout: 30_000 });
    const exposed = await sandbox.exposePort(port, { hostname: url.host });
    return Response.json({ url: exposed.url, process: server.id });
  }
  if (verb === 'GET /files' && path === '/files') {
    const { files } = await sandbox.listFiles('/workspace', { recursive: true });
    return Response.json(files.map(({ relativePath, type, size }) => ({ path: relativePath, type, size })));
  }
  if (path.startsWith('/files/')) {
    const file = `/workspace/${path.slice('/files/'.length)}`;
    if (file.split('/').includes('..')) return Response.json({ error: 'outside of the workspace' }, { status: 400 });
    if (request.method === 'GET') {
      const { content, encoding, mimeType } = await sandbox.readFile(file);
      const body = encoding === 'base64' ? Uint8Array.from(atob(content), (c) => c.charCodeAt(0)) : content;
      return new Response(body, { headers: { 'content-type': mimeType ?? 'application/octet-stream' } });
    }
    if (request.method === 'PUT') {
      await sandbox.mkdir(file.slice(0, file.lastIndexOf('/')), { recursive: true });
      await sandbox.writeFile(file, await request.text());
      return new Response(null, { status: 204 });
    }
    if (request.method === 'DELETE') {
      await sandbox.deleteFile(file);
      return new Response(null, { status: 204 });
    }
  }
  if (request.method === 'DELETE' && path === '/') {
    await sandbox.destroy();
    return new Response(null, { status: 204 });
  }
  return Response.json({ error: 'there is no such route' }, { status: 404 });
}
