// SPDX-License-Identifier: Apache-2.0
// lifecycle.ts: many sandboxes, keeping them alive, sleep, stop, destroy.
import { area, equal, fails, ok, until, type Box } from './check';

const check = area('lifecycle');
// With rpc the client calls a container stopped a moment before it is ready for a new one, and asks to try again.
async function afterStop(box: Box, command: string) {
  return until('a new container', async () => {
    try {
      return await box.exec(command);
    } catch (e) {
      if (!String(e).includes('OperationInterruptedError')) throw e;
    }
  });
}
const isStopped = async (box: Box) => (await box.getState()).status.startsWith('stopped');

check('ten sandboxes at once', async ({ other }) => {
  const boxes = Array.from({ length: 10 }, (_, i) => other(`many-${i}`));
  try {
    const said = await Promise.all(boxes.map((b, i) => b.exec(`echo ${i} >/workspace/me; sleep 0.2; cat /workspace/me`)));
    equal(said.map((r) => r.stdout.trim()), boxes.map((_, i) => String(i)));
  } finally {
    await Promise.all(boxes.map((b) => b.destroy()));
  }
});

check('destroy: what was there is gone', async ({ other }) => {
  const box = other('gone');
  await box.writeFile('/workspace/a', 'a');
  await box.destroy();
  equal((await afterStop(box, 'ls /workspace')).stdout, '');
  await Promise.all([box.destroy(), box.destroy()]);
});

check('destroy, and start again at once, ten times', async ({ other }) => {
  const box = other('again');
  for (let i = 0; i < 10; i++) {
    equal((await afterStop(box, `touch /workspace/${i}; ls /workspace`)).stdout.trim(), String(i));
    await box.destroy();
  }
});

check('stop: the next call starts a new container', async ({ other }) => {
  const box = other('stopped');
  try {
    await box.exec('echo here');
    await box.stop();
    await until('the end', () => isStopped(box));
    equal((await afterStop(box, 'echo again')).stdout.trim(), 'again');
  } finally {
    await box.destroy();
  }
});

check('sleepAfter: idle means stopped, and the next call wakes', async ({ other }) => {
  const box = other('sleeper', { sleepAfter: 1 });
  try {
    await box.exec('echo awake');
    await until('sleep', () => isStopped(box));
    equal((await afterStop(box, 'echo woken')).stdout.trim(), 'woken');
  } finally {
    await box.destroy();
  }
});

check('keepAlive: outlives its idle time', async ({ other }) => {
  const [kept, idle] = [other('kept', { sleepAfter: 1, keepAlive: true }), other('idle', { sleepAfter: 1 })];
  try {
    await Promise.all([kept.startProcess('sleep 300', { processId: 'there' }), idle.exec('true')]);
    await until('the other one sleeps', () => isStopped(idle));
    equal((await kept.getProcess('there'))?.status, 'running');
    await kept.setKeepAlive(false);
    // The client's chain of alarms breaks when one finds the sandbox kept alive in the very millisecond it was set for: what it sets
    // then counts as itself. Something scheduled begins a new chain.
    await kept.schedule(1, 'getState');
    await until('it sleeps as well', () => isStopped(kept));
  } finally {
    await Promise.all([kept.destroy(), idle.destroy()]);
  }
});

check('settings', async ({ other, transport }) => {
  const box = other('settings', { containerTimeouts: { portReadyTimeoutMS: 60_000, waitIntervalMS: 100 }, labels: { owner: 'proof' } });
  try {
    await box.setSleepAfter('5m');
    await box.setContainerTimeouts({ instanceGetTimeoutMS: 20_000 });
    await box.setTransport(transport);
    await box.setLabels({ owner: 'someone' });
    await box.setSandboxName(`${transport}-lifecycle-settings`);
    await box.configure({ sleepAfter: '6m' } as never);
    equal((await box.exec('echo set')).stdout.trim(), 'set');
    equal(await box.getContainerPlacementId(), null);
    const state = await box.getState();
    ok(['running', 'healthy'].includes(state.status), state.status);
  } finally {
    await box.destroy();
  }
});

check('start, startAndWaitForPorts, waitForPort, renewActivityTimeout', async ({ other }) => {
  const box = other('started');
  try {
    await box.start();
    await box.startAndWaitForPorts(3000);
    await box.waitForPort({ portToCheck: 3000, retries: 50, waitInterval: 100 } as never);
    await box.renewActivityTimeout();
    equal((await box.exec('echo started')).stdout.trim(), 'started');
  } finally {
    await box.destroy();
  }
});

check('names', async ({ env, other }) => {
  const long = `${env.SANDBOX_TRANSPORT}-${'n'.repeat(30)}`.slice(0, 40);
  const box = other(long, { normalizeId: true });
  try {
    equal((await box.exec('echo named')).stdout.trim(), 'named');
  } finally {
    await box.destroy();
  }
  await fails((async () => other(`${'x'.repeat(64)}`).exec('true'))(), 'Error');
});
