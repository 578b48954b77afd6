// SPDX-License-Identifier: Apache-2.0
// POST / {"code": "...", "language"?: "python" | "javascript" | "typescript"}: a new sandbox for each request, nothing is left of it.
import { getSandbox, type Sandbox } from '@cloudflare/sandbox';

export { Sandbox } from '@cloudflare/sandbox';

interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
}

const LANGUAGES = ['python', 'javascript', 'typescript'] as const;
type Language = (typeof LANGUAGES)[number];
const LIMIT_MS = 10_000;

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    if (request.method !== 'POST') return new Response('POST {"code": "...", "language"?: "..."}\n', { status: 405 });
    const { code, language = 'python' } = (await request.json().catch(() => ({}))) as { code?: string; language?: Language };
    if (typeof code !== 'string') return Response.json({ error: 'code is missing' }, { status: 400 });
    if (!LANGUAGES.includes(language)) return Response.json({ error: `language is one of ${LANGUAGES.join(', ')}` }, { status: 400 });

    const sandbox = getSandbox(env.Sandbox, `shot-${crypto.randomUUID()}`);
    try {
      const context = await sandbox.createCodeContext({ language });
      const limit = new Promise<null>((resolve) => setTimeout(resolve, LIMIT_MS, null)); // destroy() below ends what still runs
      const run = await Promise.race([sandbox.runCode(code, { context }), limit]);
      if (!run) return Response.json({ error: `the code ran longer than ${LIMIT_MS / 1000} s` }, { status: 408 });
      const { results, logs, error } = run;
      return Response.json({ results, stdout: logs.stdout.join(''), stderr: logs.stderr.join(''), error: error ?? null });
    } finally {
      await sandbox.destroy();
    }
  },
};
