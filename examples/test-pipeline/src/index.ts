// SPDX-License-Identifier: Apache-2.0
// POST / {"repository": URL, "branch"?: NAME}: clones, finds out what kind of project it is, installs, tests. The answer is a
// stream of lines of JSON, one per event, so that a long test run can be watched.
import { getSandbox, parseSSEStream, type ExecEvent, type Sandbox } from '@cloudflare/sandbox';

export { Sandbox } from '@cloudflare/sandbox';

interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
}

type Event = { step: string; status?: 'passed' | 'failed' | 'running'; output?: string; exitCode?: number };

const PROJECT = '/workspace/project';

// The first kind whose file exists wins; its steps run in order until one fails.
const KINDS = [
  { file: 'package-lock.json', name: 'node', steps: { install: 'npm ci --no-audit --no-fund', test: 'npm test' } },
  { file: 'package.json', name: 'node', steps: { install: 'npm install --no-audit --no-fund', test: 'npm test' } },
  { file: 'requirements.txt', name: 'python', steps: { install: 'pip install --break-system-packages -q -r requirements.txt', test: 'python3 -m unittest -v' } },
  { file: 'setup.py', name: 'python', steps: { test: 'python3 -m unittest -v' } },
  { file: 'Makefile', name: 'make', steps: { test: 'make test' } },
];

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    if (request.method !== 'POST') return new Response('POST {"repository": URL, "branch"?: NAME}\n', { status: 405 });
    const { repository, branch } = (await request.json().catch(() => ({}))) as { repository?: string; branch?: string };
    if (!repository || !URL.canParse(repository)) return Response.json({ error: 'repository must be a URL' }, { status: 400 });

    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const writer = writable.getWriter();
    const encoder = new TextEncoder();
    const tell = (event: Event) => writer.write(encoder.encode(JSON.stringify(event) + '\n'));
    pipeline(env, repository, branch, tell).finally(() => writer.close()).catch(() => {});
    return new Response(readable, { headers: { 'content-type': 'application/x-ndjson' } });
  },
};

async function pipeline(env: Env, repository: string, branch: string | undefined, tell: (event: Event) => Promise<void>): Promise<void> {
  const sandbox = getSandbox(env.Sandbox, `pipeline-${crypto.randomUUID()}`);
  let step = 'clone';
  try {
    await tell({ step, status: 'running' });
    await sandbox.gitCheckout(repository, { branch, targetDir: PROJECT, depth: 1 });
    await tell({ step, status: 'passed' });

    const names = (await sandbox.listFiles(PROJECT)).files.map((file) => file.name);
    const kind = KINDS.find(({ file }) => names.includes(file));
    if (!kind) throw new Error(`none of ${KINDS.map(({ file }) => file).join(', ')} is there`);

    for (const [name, command] of Object.entries(kind.steps)) {
      step = name;
      await tell({ step, status: 'running', output: `${kind.name}: ${command}\n` });
      const exitCode = await follow(await sandbox.execStream(command, { cwd: PROJECT }), (output) => tell({ step, output }));
      await tell({ step, status: exitCode === 0 ? 'passed' : 'failed', exitCode });
      if (exitCode !== 0) return;
    }
  } catch (error) {
    await tell({ step, status: 'failed', output: error instanceof Error ? error.message : String(error) });
  } finally {
    await sandbox.destroy();
  }
}

async function follow(stream: ReadableStream<Uint8Array>, output: (text: string) => Promise<void>): Promise<number> {
  for await (const event of parseSSEStream<ExecEvent>(stream)) {
    if (event.type === 'stdout' || event.type === 'stderr') await output(event.data ?? '');
    if (event.type === 'error') throw new Error(event.error);
    if (event.type === 'complete') return event.exitCode ?? 0;
  }
  throw new Error('the command ended without an exit code');
}
