// SPDX-License-Identifier: Apache-2.0
// POST /webhook: GitHub tells of a pull request; the bot clones it into a sandbox, looks at what changed, has a model
// write the review and posts it as a comment.
import Anthropic from '@anthropic-ai/sdk';
import { getSandbox, type Sandbox } from '@cloudflare/sandbox';
import { Octokit } from '@octokit/rest';

export { Sandbox } from '@cloudflare/sandbox';

interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
  ANTHROPIC_API_KEY: string;
  ANTHROPIC_BASE_URL: string;
  MODEL: string;
  GITHUB_API_URL: string;
  GITHUB_TOKEN: string;
  WEBHOOK_SECRET: string;
}

interface PullRequestEvent {
  action: string;
  pull_request: { number: number; title: string; head: { ref: string; sha: string }; base: { ref: string; sha: string } };
  repository: { name: string; clone_url: string; owner: { login: string } };
}

const MAX_DIFF = 60_000;
const REPOSITORY = '/workspace/repository';

export default {
  async fetch(request: Request, env: Env, context: ExecutionContext): Promise<Response> {
    if (request.method !== 'POST' || new URL(request.url).pathname !== '/webhook') return new Response('Point a GitHub webhook at /webhook.\n', { status: 404 });
    const body = await request.text();
    if (!(await isSigned(body, request.headers.get('x-hub-signature-256'), env.WEBHOOK_SECRET))) {
      return Response.json({ error: 'the signature is wrong' }, { status: 401 });
    }
    const event = JSON.parse(body) as PullRequestEvent;
    if (request.headers.get('x-github-event') !== 'pull_request' || !['opened', 'synchronize'].includes(event.action)) return Response.json({ status: 'ignored' });
    context.waitUntil(review(event, env)); // GitHub wants its answer at once
    return Response.json({ status: 'started' }, { status: 202 });
  },
};

async function isSigned(body: string, signature: string | null, secret: string): Promise<boolean> {
  const encoder = new TextEncoder();
  const given = signature?.match(/^sha256=([0-9a-f]{64})$/)?.[1];
  if (!given) return false;
  const key = await crypto.subtle.importKey('raw', encoder.encode(secret), { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
  return crypto.subtle.verify('HMAC', key, Uint8Array.from(given.match(/../g)!, (byte) => parseInt(byte, 16)), encoder.encode(body));
}

async function review({ pull_request: pull, repository }: PullRequestEvent, env: Env): Promise<void> {
  const github = new Octokit({ auth: env.GITHUB_TOKEN, baseUrl: env.GITHUB_API_URL });
  const place = { owner: repository.owner.login, repo: repository.name, issue_number: pull.number };
  const sandbox = getSandbox(env.Sandbox, `review-${crypto.randomUUID()}`);
  try {
    const url = new URL(repository.clone_url);
    if (url.protocol === 'https:') Object.assign(url, { username: 'x-access-token', password: env.GITHUB_TOKEN });
    await sandbox.gitCheckout(url.href, { branch: pull.head.ref, targetDir: REPOSITORY });
    const at = { cwd: REPOSITORY, env: { BASE: pull.base.sha, HEAD: pull.head.sha } }; // data travels as variables, not as part of a command
    const diff = await sandbox.exec('git diff --stat --patch "$BASE...$HEAD"', at);
    if (!diff.success) throw new Error(diff.stderr);
    const log = await sandbox.exec('git log --format="%h %s" "$BASE..$HEAD"', at);

    const model = new Anthropic({ apiKey: env.ANTHROPIC_API_KEY, baseURL: env.ANTHROPIC_BASE_URL });
    const message = await model.messages.create({
      model: env.MODEL,
      max_tokens: 2048,
      system: 'You review pull requests: mistakes, security, tests. Be brief and name files and lines.',
      messages: [{ role: 'user', content: `${pull.title}\n\nCommits:\n${log.stdout}\n\n${diff.stdout.slice(0, MAX_DIFF)}` }],
    });
    const text = message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
    await github.issues.createComment({ ...place, body: `### Review of ${pull.head.sha.slice(0, 7)}\n\n${text}` });
  } catch (error) {
    await github.issues.createComment({ ...place, body: `The review failed: ${error instanceof Error ? error.message : error}` });
  } finally {
    await sandbox.destroy();
  }
}
