// A command on the data of a server that was stopped: the embedded Redis that it starts has every write.

import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { startEmbedded } from '../../src/redis/embedded.ts';
import { openStore } from '../../src/store.ts';
import { runCli } from '../support/cli.ts';
import { endAll, temporaryDir } from '../support/processes.ts';

vi.mock('../../src/store.ts', async (original) => {
  const store = await original<typeof import('../../src/store.ts')>();
  return { ...store, openStore: vi.fn(store.openStore) };
});

afterEach(endAll);

test('its changes do not wait for leases', async () => {
  const dataDir = join(temporaryDir(), 'data');
  await (await startEmbedded({ dataDir })).stop();
  for (const name of ['first', 'second'])
    expect(await runCli(['workspace', 'create', name], { TOLLGATE_DATA_DIR: dataDir })).toMatchObject({ code: 0 });
  for (const [options] of vi.mocked(openStore).mock.calls) expect(options.isComplete!()).toBe(true);
  expect(openStore).toHaveBeenCalledTimes(2);
});
