// SPDX-License-Identifier: Apache-2.0
// POST /ask {"question": "..."}: a model writes a Python program that prints the answer, a fresh sandbox runs it.
import Anthropic from '@anthropic-ai/sdk';
import { getSandbox, type Sandbox } from '@cloudflare/sandbox';

export { Sandbox } from '@cloudflare/sandbox';

interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
  ANTHROPIC_API_KEY: string;
  ANTHROPIC_BASE_URL: string;
  MODEL: string;
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    if (request.method !== 'POST' || new URL(request.url).pathname !== '/ask') return new Response('POST /ask {"question": "..."}\n', { status: 404 });
    const { question } = (await request.json().catch(() => ({}))) as { question?: unknown };
    if (typeof question !== 'string' || !question.trim()) return Response.json({ error: 'a question is missing' }, { status: 400 });

    const code = await writeProgram(env, question);
    const sandbox = getSandbox(env.Sandbox, `ask-${crypto.randomUUID()}`);
    try {
      await sandbox.writeFile('/workspace/answer.py', code);
      const { success, stdout, stderr } = await sandbox.exec('timeout 20 python3 /workspace/answer.py');
      return Response.json({ question, code, success, output: stdout, error: stderr });
    } finally {
      await sandbox.destroy();
    }
  },
};

async function writeProgram(env: Env, question: string): Promise<string> {
  const model = new Anthropic({ apiKey: env.ANTHROPIC_API_KEY, baseURL: env.ANTHROPIC_BASE_URL });
  const message = await model.messages.create({
    model: env.MODEL,
    max_tokens: 1024,
    system: 'You answer with one Python program that prints the answer to the question. The program alone: no explanation, no Markdown.',
    messages: [{ role: 'user', content: question }],
  });
  const text = message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
  return text.replace(/^\s*```(?:python)?\n([\s\S]*?)```\s*$/, '$1'); // some answer in Markdown all the same
}
