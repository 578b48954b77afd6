// SPDX-License-Identifier: Apache-2.0
// environment.ts: variables of the sandbox, before and after its start.
import { area, equal } from './check';

const check = area('environment');

check('setEnvVars: seen by every later command, until unset', async ({ box }) => {
  await box.setEnvVars({ COLOUR: "bl'ue", SHAPE: 'round' });
  equal((await box.exec('echo "$COLOUR $SHAPE"')).stdout.trim(), "bl'ue round");
  await box.setEnvVars({ COLOUR: undefined });
  equal((await box.exec('echo "[$COLOUR] $SHAPE"')).stdout.trim(), '[] round');
});

check('setEnvVars: before the first command', async ({ other }) => {
  const box = other('early');
  try {
    await box.setEnvVars({ EARLY: 'bird' });
    equal((await box.exec('echo $EARLY')).stdout.trim(), 'bird');
    const p = await box.startProcess('echo "process $EARLY"');
    equal((await p.waitForLog(/process (\w+)/, 20000)).match?.[1], 'bird');
  } finally {
    await box.destroy();
  }
});

check('a variable of one command wins over the sandbox', async ({ box }) => {
  await box.setEnvVars({ PLACE: 'sandbox' });
  equal((await box.exec('echo $PLACE', { env: { PLACE: 'command' } })).stdout.trim(), 'command');
  equal((await box.exec('echo $PLACE')).stdout.trim(), 'sandbox');
});
