// SPDX-License-Identifier: Apache-2.0
// index.ts: the proof Worker: previews, the checks by name, and what a browser would use: terminals.
import { getSandbox, proxyToSandbox } from '@cloudflare/sandbox';
import { checks, run, type Box, type Env } from './check';
import { serve } from './ports';
import './code';
import './commands';
import './environment';
import './files';
import './git';
import './lifecycle';
import './outbound';
import './processes';
import './sessions';
import './storage';
import './watch';

export { Sandbox } from './sandbox';
export { ContainerProxy } from '@cloudflare/sandbox';

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const preview = await proxyToSandbox(request, env as never);
    if (preview) return preview;

    const url = new URL(request.url);
    const [verb, id, argument] = url.pathname.split('/').slice(1).map(decodeURIComponent);
    switch (verb) {
      case 'ready':
        return Response.json({ checks: [...checks.keys()] });
      case 'check':
        return Response.json(await run(`${id}/${argument}`, env, `localhost:${url.port}`));
    }

    const box = getSandbox(env.Sandbox, id) as Box;
    switch (verb) {
      case 'exec':
        return Response.json(await box.exec(await request.text()));
      case 'expose':
        await serve(box, Number(argument));
        return Response.json(await box.exposePort(Number(argument), { hostname: `localhost:${url.port}` }));
      case 'unexpose':
        await box.unexposePort(Number(argument));
        return new Response(null, { status: 204 });
      case 'start':
        return Response.json((await box.startProcess(await request.text(), { processId: argument })).id);
      case 'process':
        return Response.json((await box.getProcess(argument))?.status ?? null);
      case 'stop':
        await box.stop();
        return new Response(null, { status: 204 });
      case 'destroy':
        await box.destroy();
        return new Response(null, { status: 204 });
      case 'terminal':
        return box.terminal(request, { cols: 100, rows: 30 });
      case 'session-terminal':
        return (await box.getSession(argument)).terminal(request);
    }
    return new Response('no such thing here\n', { status: 404 });
  },
};
