// SPDX-License-Identifier: Apache-2.0
// Every morning (see "triggers" in wrangler.jsonc) a sandbox makes a report, which is kept in a bucket. GET /reports lists them,
// GET /reports/NAME gives one.
import { getSandbox, type Sandbox } from '@cloudflare/sandbox';

export { Sandbox } from '@cloudflare/sandbox';

interface Env {
  Sandbox: DurableObjectNamespace<Sandbox>;
  REPORTS: R2Bucket;
}

const REPORT = `
import collections, json, platform, random, sys
random.seed(sys.argv[1])
throws = collections.Counter(random.randint(1, 6) for _ in range(6000))
json.dump({'day': sys.argv[1], 'python': platform.python_version(), 'throws': dict(sorted(throws.items()))}, sys.stdout)
`;

export default {
  async scheduled(event: ScheduledController, env: Env): Promise<void> {
    const day = new Date(event.scheduledTime).toISOString().slice(0, 10);
    const sandbox = getSandbox(env.Sandbox, `report-${day}`);
    try {
      await sandbox.writeFile('/workspace/report.py', REPORT);
      const { success, stdout, stderr } = await sandbox.exec(`python3 /workspace/report.py ${day}`);
      if (!success) throw new Error(`the report failed: ${stderr}`); // the platform notes the run as failed
      await env.REPORTS.put(`${day}.json`, stdout);
    } finally {
      await sandbox.destroy();
    }
  },

  async fetch(request: Request, env: Env): Promise<Response> {
    const [, root, name] = new URL(request.url).pathname.split('/');
    if (root !== 'reports') return new Response('GET /reports\n', { status: 404 });
    if (!name) return Response.json((await env.REPORTS.list()).objects.map((object) => object.key));
    const report = await env.REPORTS.get(name);
    return report ? new Response(report.body, { headers: { 'content-type': 'application/json' } }) : Response.json({ error: 'no such report' }, { status: 404 });
  },
};
