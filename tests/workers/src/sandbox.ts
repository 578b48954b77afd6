// SPDX-License-Identifier: Apache-2.0
// sandbox.ts: the Durable Object's class: the client's own, with names that only this Worker answers for, and with
// what works only inside the object: callbacks that are called after their call has returned.
import { Sandbox as Base } from '@cloudflare/sandbox';

export class Sandbox extends Base {
  interceptHttps = true;

  async processCallbacks(command: string): Promise<string[]> {
    const seen: string[] = [];
    await new Promise<void>((resolve, reject) =>
      this.startProcess(command, {
        onStart: (p) => void seen.push(`start ${typeof p.pid}`),
        onOutput: (stream, data) => void seen.push(`${stream} ${data.trim()}`),
        onExit: (code) => resolve(void seen.push(`exit ${code}`)),
        onError: reject,
      }).catch(reject),
    );
    return seen;
  }

  async codeCallbacks(code: string): Promise<string[]> {
    const seen: string[] = [];
    await this.runCode(code, {
      onStdout: (m) => void seen.push(`out ${m.text.trim()}`),
      onStderr: (m) => void seen.push(`err ${m.text.trim()}`),
      onResult: (r) => void seen.push(`result ${r.text}`),
      onError: (e) => void seen.push(`error ${e.name}`),
    });
    return seen;
  }
}

Sandbox.outboundByHost = {
  'greeter.test': async (request: Request) => new Response(`hello from the worker, ${new URL(request.url).pathname.slice(1)}`),
};
Sandbox.outboundHandlers = {
  counted: async (request: Request, _env: unknown, context: { params?: unknown }) =>
    new Response(`${request.method} ${(await request.text()).length} ${(context.params as { n: number }).n}`),
};
