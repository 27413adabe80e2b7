// A pool of connections that are idle for about as long as Tollgate keeps them, over a distance: no call is lost with
// the setting that docs/install.md names, "Behind a load balancer".

import { execFile, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { report } from './report.ts';
import { startRig } from './rig.ts';

const program = fileURLToPath(new URL('idle.go', import.meta.url));
const missing = spawnSync('go', ['version']).status === 0 ? '' : 'no Go compiler';

test.skipIf(missing)(
  `a Go client with IdleConnTimeout 7 s loses no call over 20 ms each way${missing ? ` (SKIPPED: ${missing})` : ''}`,
  async () => {
    const rig = await startRig();
    const { apiId } = await rig.ok('apis.createApi', { name: 'idle' });
    const { key } = await rig.ok('keys.createKey', { apiId });
    const { stdout } = await promisify(execFile)('go', ['run', program, `127.0.0.1:${rig.port}`], {
      env: { ...process.env, KEY: key as string, ROOT_KEY: rig.rootKey },
    });
    await rig.stop();
    const failed = JSON.parse(stdout) as { short: number; long: number };
    expect(failed.short).toBe(0);
    report({
      order: '10.3b',
      fault:
        'A Go client calls with pauses of 7 to 13 s, over a link of 20 ms each way: 2 400 calls on kept connections',
      expected: 'no call is lost with `IdleConnTimeout: 7 * time.Second`',
      measured: `0 of 2400 failed; with Go's own 90 s ${failed.long} of 2400 (their connection was closed meanwhile)`,
    });
  },
  300_000,
);
