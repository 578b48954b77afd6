// SPDX-License-Identifier: Apache-2.0
// POST / with the form fields "file" (CSV) and "question": a model sees the first lines and writes the analysis, which may
// draw with matplotlib. It runs in a code context, whose results come back typed: text, tables, pictures.
import Anthropic from '@anthropic-ai/sdk';
import { getSandbox, type Sandbox } from '@cloudflare/sandbox';

export { Sandbox } from '@cloudflare/sandbox';

interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
  ANTHROPIC_API_KEY: string;
  ANTHROPIC_BASE_URL: string;
  MODEL: string;
}

const MAX_BYTES = 10 * 1024 * 1024;
const DATA = '/workspace/data.csv';

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    if (request.method !== 'POST') return new Response('POST a form with "file" and "question"\n', { status: 405 });
    const form = await request.formData().catch(() => null);
    const [file, question] = [form?.get('file'), form?.get('question')];
    if (!file || typeof file === 'string' || typeof question !== 'string') return Response.json({ error: 'file and question are needed' }, { status: 400 });
    if (file.size > MAX_BYTES) return Response.json({ error: 'the file is larger than 10 MiB' }, { status: 413 });

    const sandbox = getSandbox(env.Sandbox, `analysis-${crypto.randomUUID()}`);
    try {
      await sandbox.writeFile(DATA, await file.text());
      const shape = await sandbox.runCode(`import pandas as pd\ndf = pd.read_csv('${DATA}')\nprint(df.dtypes)\nprint(df.head())`);
      if (shape.error) return Response.json({ error: 'this is no table', details: shape.error.message }, { status: 422 });

      const code = await writeAnalysis(env, question, shape.logs.stdout.join(''));
      const run = await sandbox.runCode(code, { timeout: 60_000 }); // the same context: df is there already
      if (run.error) return Response.json({ error: `${run.error.name}: ${run.error.message}`, code }, { status: 500 });
      const png = run.results.find((result) => result.png)?.png;
      return Response.json({
        code,
        findings: run.logs.stdout.join(''),
        table: run.results.find((result) => result.html)?.html ?? null,
        chart: png ? `data:image/png;base64,${png}` : null,
      });
    } finally {
      await sandbox.destroy();
    }
  },
};

// The model must call a tool, so that what comes back is code and nothing else.
async function writeAnalysis(env: Env, question: string, shape: string): Promise<string> {
  const model = new Anthropic({ apiKey: env.ANTHROPIC_API_KEY, baseURL: env.ANTHROPIC_BASE_URL });
  const message = await model.messages.create({
    model: env.MODEL,
    max_tokens: 2048,
    tools: [{
      name: 'analyse',
      description: 'Runs Python code. pandas and matplotlib are installed, the table is the DataFrame df.',
      input_schema: { type: 'object', properties: { code: { type: 'string' } }, required: ['code'] },
    }],
    tool_choice: { type: 'tool', name: 'analyse' },
    messages: [{ role: 'user', content: `The table df:\n${shape}\nPrint the findings; draw a chart if it helps.\nQuestion: ${question}` }],
  });
  const call = message.content.find((block) => block.type === 'tool_use');
  if (!call) throw new Error('the model wrote no code');
  return (call.input as { code: string }).code;
}
