// SPDX-License-Identifier: Apache-2.0
// outbound.ts: requests out of a sandbox, answered by the Worker instead of the internet (sandbox.ts has the handlers).
import { area, equal, includes, ok } from './check';

const check = area('outbound');
const curl = (rest: string) => `curl -sS --max-time 20 ${rest}`;

check('outboundByHost: a name that the Worker answers', async ({ box }) => {
  const r = await box.exec(curl('http://greeter.test/reader'));
  equal([r.exitCode, r.stdout], [0, 'hello from the worker, reader'], r.stderr);
});

check('outboundByHost: over https, with a certificate the sandbox trusts', async ({ box }) => {
  const r = await box.exec(curl('https://greeter.test/secret'));
  equal([r.exitCode, r.stdout], [0, 'hello from the worker, secret'], r.stderr);
  const python = await box.exec(`python3 -c "import urllib.request as u; print(u.urlopen('https://greeter.test/python').read().decode())"`);
  equal(python.stdout.trim(), 'hello from the worker, python', python.stderr);
  const node = await box.exec(`node -e "fetch('https://greeter.test/node').then(r => r.text()).then(console.log)"`);
  equal(node.stdout.trim(), 'hello from the worker, node', node.stderr);
  ok((await box.exec(curl('--cacert /etc/hosts https://greeter.test/'))).exitCode !== 0, 'others do not trust it');
});

check('setOutboundByHost, removeOutboundByHost: while it runs', async ({ box }) => {
  await box.exec('true');
  await box.setOutboundByHost('late.test', 'counted', { n: 7 });
  equal((await box.exec(curl('-d abcd http://late.test/'))).stdout, 'POST 4 7');
  await box.removeOutboundByHost('late.test');
  ok((await box.exec(curl('-f http://late.test/'))).exitCode !== 0, 'no answer any more');
});

check('setOutboundByHosts: all of them', async ({ box }) => {
  await box.setOutboundByHosts({ 'one.test': { method: 'counted', params: { n: 1 } }, 'two.test': { method: 'counted', params: { n: 2 } } });
  equal((await box.exec(`${curl('-d x http://one.test/')}; ${curl('-d xy http://two.test/')}`)).stdout, 'POST 1 1POST 2 2');
  await box.setOutboundByHosts({});
});

check('setOutboundHandler: everything else', async ({ box }) => {
  await box.setOutboundHandler('counted', { n: 9 });
  equal((await box.exec(curl('-d abc http://192.0.2.77/'))).stdout, 'POST 3 9');
});

check('hosts: denied and allowed', async ({ box }) => {
  await box.setOutboundHandler('counted', { n: 9 });
  await box.denyHost('bad.test');
  ok((await box.exec(curl('-f http://bad.test/'))).exitCode !== 0, 'denied');
  await box.removeDeniedHost('bad.test');
  await box.setDeniedHosts([]);
  await box.allowHost('good.test');
  includes((await box.exec(curl('-d a http://good.test/'))).stdout, 'POST 1 9');
  ok((await box.exec(curl('-f http://other.test/'))).exitCode !== 0, 'not on the list');
  await box.removeAllowedHost('good.test');
  await box.setAllowedHosts([]);
});
