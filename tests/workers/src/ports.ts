// SPDX-License-Identifier: Apache-2.0
// ports.ts: exposed ports; requests from outside to their previews are the business of test_worker.py.
import { area, equal, fails, includes, ok, until, type Box } from './check';

const check = area('ports');

// A service that shows what reached it: /echo answers with the request, /stream in pieces, a WebSocket says everything twice.
const SERVICE = `
const http = require('http'), crypto = require('crypto');
const server = http.createServer((q, a) => {
  let body = '';
  q.on('data', (d) => (body += d)).on('end', () => {
    if (q.url === '/redirect') return a.writeHead(302, { location: '/echo' }).end();
    if (q.url === '/stream') {
      a.writeHead(200, { 'content-type': 'text/event-stream' });
      a.write('data: 1\\n\\n');
      return setTimeout(() => a.end('data: 2\\n\\n'), 100);
    }
    a.writeHead(q.url === '/teapot' ? 418 : 200, { 'content-type': 'application/json', 'x-service': 'demo' });
    a.end(JSON.stringify({ method: q.method, url: q.url, body, headers: q.headers }));
  });
});
server.on('upgrade', (q, s) => {
  const accept = crypto.createHash('sha1').update(q.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  s.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n');
  s.on('data', (f) => {
    if ((f[0] & 15) === 8) return s.end();
    const n = f[1] & 127, mask = f.subarray(2, 6), out = Buffer.alloc(n);
    for (let i = 0; i < n; i++) out[i] = f[6 + i] ^ mask[i % 4];
    s.write(Buffer.concat([Buffer.from([0x81, 2 * n]), out, out]));
  });
});
server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log('serving'));
`;

export async function serve(box: Box, port: number) {
  await box.writeFile('/workspace/service.js', SERVICE);
  const p = await box.startProcess(`exec node /workspace/service.js ${port}`, { processId: `service-${port}` });
  await p.waitForLog('serving', 30000);
}

check('exposePort: a url, listed, and not twice', async ({ box, host }) => {
  await serve(box, 8080);
  const exposed = await box.exposePort(8080, { hostname: host, name: 'web' });
  equal([exposed.port, exposed.name], [8080, 'web']);
  ok(new RegExp(`^http://8080-[a-z]+-ports-[a-z0-9_]{16}\\.${host}/$`).test(exposed.url), exposed.url);
  equal(await box.isPortExposed(8080), true);
  equal(await box.isPortExposed(8081), false);
  const [listed] = await box.getExposedPorts(host);
  equal([listed.port, listed.url, listed.status], [8080, exposed.url, 'active']);
  const token = new URL(exposed.url).hostname.split('.')[0].split('-').at(-1)!;
  equal(await box.validatePortToken(8080, token), true);
  equal(await box.validatePortToken(8080, 'wrong'), false);
  await box.unexposePort(8080);
  equal(await box.isPortExposed(8080), false);
});

check('exposePort: a token of ours', async ({ box, host }) => {
  const { url } = await box.exposePort(8081, { hostname: host, token: 'my_token' });
  includes(url, '-my_token.');
  await fails(box.exposePort(8082, { hostname: host, token: 'my_token' }), 'Error');
  await box.unexposePort(8081);
});

check('exposePort: what is refused', async ({ box, host }) => {
  await fails(box.exposePort(80, { hostname: host }), 'Error');
  await fails(box.exposePort(3000, { hostname: host }), 'Error');
  await fails(box.exposePort(8080, { hostname: 'x.workers.dev' }), 'CustomDomainRequiredError');
});

check('fetch and containerFetch: straight to a port', async ({ box }) => {
  if ((await box.getProcess('service-8080'))?.status !== 'running') await serve(box, 8080);
  const request = new Request('http://sandbox/proxy/8080/echo?a=1', { method: 'POST', body: 'hello' });
  const seen = (await (await box.fetch(request)).json()) as { method: string; url: string; body: string };
  equal([seen.method, seen.url, seen.body], ['POST', '/proxy/8080/echo?a=1', 'hello']);
  equal((await box.containerFetch('http://sandbox/teapot', 8080)).status, 418);
});

check('fetch: the control port', async ({ box }) => {
  const answer = await box.fetch(new Request('http://sandbox/api/ping'));
  equal(answer.status, 200);
  includes(await answer.text(), 'pong');
});

check('wsConnect: a WebSocket to a port', async ({ box }) => {
  if ((await box.getProcess('service-8080'))?.status !== 'running') await serve(box, 8080);
  const response = await box.wsConnect(new Request('http://sandbox/ws', { headers: { Upgrade: 'websocket', Connection: 'Upgrade' } }), 8080);
  equal(response.status, 101);
  const socket = response.webSocket!;
  const said: unknown[] = [];
  socket.addEventListener('message', (e) => void said.push(e.data));
  socket.accept();
  socket.send('ab');
  await until('the answer', async () => said.length > 0);
  equal(said, ['abab']);
  socket.close();
});

check('tunnels: need the rpc transport', async ({ box, transport }) => {
  equal(await box.tunnels.list(), []);
  await fails(box.tunnels.get(8080), 'Error', transport === 'rpc' ? '' : 'rpc'); // there is no cloudflared in the base image
  await box.tunnels.destroy(8080);
});
