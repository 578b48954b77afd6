// SPDX-License-Identifier: Apache-2.0
// POST / {"repository": URL, "task": "..."}: a model works on a clone of the repository with two tools, a shell and an editor, until
// it is done; the answer is what it says and the change as a diff.
import Anthropic from '@anthropic-ai/sdk';
import { getSandbox, type Sandbox } from '@cloudflare/sandbox';

export { Sandbox } from '@cloudflare/sandbox';

interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
  ANTHROPIC_API_KEY: string;
  ANTHROPIC_BASE_URL: string;
  MODEL: string;
}

const REPOSITORY = '/workspace/repository';
const MAX_TURNS = 25;
const MAX_OUTPUT = 20_000; // characters of one command that the model gets to see

const TOOLS: Anthropic.Tool[] = [
  {
    name: 'shell',
    description: 'Runs a command with bash in the root of the repository and gives its output and exit code.',
    input_schema: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
  },
  {
    name: 'write_file',
    description: 'Writes a file, given by its path in the repository.',
    input_schema: { type: 'object', properties: { path: { type: 'string' }, content: { type: 'string' } }, required: ['path', 'content'] },
  },
];

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    if (request.method !== 'POST') return new Response('POST {"repository": URL, "task": "..."}\n', { status: 405 });
    const { repository, task } = (await request.json().catch(() => ({}))) as { repository?: string; task?: string };
    if (!repository || !URL.canParse(repository) || !task) return Response.json({ error: 'repository and task are needed' }, { status: 400 });

    const sandbox = getSandbox(env.Sandbox, `agent-${crypto.randomUUID()}`);
    try {
      await sandbox.gitCheckout(repository, { targetDir: REPOSITORY });
      const { summary, steps } = await work(env, sandbox, task);
      await sandbox.exec('git add -A', { cwd: REPOSITORY }); // new files belong to the change
      const diff = await sandbox.exec('git diff --cached', { cwd: REPOSITORY });
      return Response.json({ summary, steps, diff: diff.stdout });
    } catch (error) {
      return Response.json({ error: error instanceof Error ? error.message : String(error) }, { status: 502 });
    } finally {
      await sandbox.destroy();
    }
  },
};

async function work(env: Env, sandbox: Sandbox, task: string) {
  const model = new Anthropic({ apiKey: env.ANTHROPIC_API_KEY, baseURL: env.ANTHROPIC_BASE_URL });
  const messages: Anthropic.MessageParam[] = [{ role: 'user', content: task }];
  const steps: string[] = [];
  for (let turn = 0; turn < MAX_TURNS; turn++) {
    const answer = await model.messages.create({
      model: env.MODEL,
      max_tokens: 4096,
      system: 'You work on a git repository with the tools you are given. Look first, change little, run the tests. End with one sentence about what you did.',
      tools: TOOLS,
      messages,
    });
    messages.push({ role: 'assistant', content: answer.content });
    const calls = answer.content.filter((block) => block.type === 'tool_use');
    if (calls.length === 0) return { summary: answer.content.map((block) => (block.type === 'text' ? block.text : '')).join(''), steps };
    const results: Anthropic.ToolResultBlockParam[] = [];
    for (const call of calls) {
      steps.push(`${call.name} ${JSON.stringify(call.input).slice(0, 200)}`);
      results.push({ type: 'tool_result', tool_use_id: call.id, ...(await use(sandbox, call)) });
    }
    messages.push({ role: 'user', content: results });
  }
  return { summary: `stopped after ${MAX_TURNS} turns`, steps };
}

// A tool that fails tells the model so; it may do better the next time.
async function use(sandbox: Sandbox, call: Anthropic.ToolUseBlock): Promise<{ content: string; is_error?: boolean }> {
  const input = call.input as Record<string, string>;
  try {
    if (call.name === 'write_file') {
      const path = `${REPOSITORY}/${input.path}`;
      await sandbox.mkdir(path.slice(0, path.lastIndexOf('/')), { recursive: true });
      await sandbox.writeFile(path, input.content);
      return { content: `${input.path} is written` };
    }
    const { stdout, stderr, exitCode } = await sandbox.exec(`timeout 120 bash -c "$COMMAND"`, { cwd: REPOSITORY, env: { COMMAND: input.command } });
    return { content: `${stdout}${stderr}\n(exit code ${exitCode})`.slice(-MAX_OUTPUT) };
  } catch (error) {
    return { content: error instanceof Error ? error.message : String(error), is_error: true };
  }
}
