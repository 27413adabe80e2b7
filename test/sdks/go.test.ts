// The Go SDK, `github.com/unkeyed/sdks/api/go/v2`, where there is Go and the module can be downloaded. The module proxy
// that Tollgate's own machines reach does not serve it: 2.7.1 was run by hand, from its source. For the same reason
// there is no go.sum; Go compares what it downloads with its public checksum database.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, vi } from 'vitest';
import { startDriver } from './driver.ts';
import { sdkTests } from './suite.ts';

vi.setConfig({ hookTimeout: 300_000 });

const source = 'test/sdks/go';
const files = readdirSync(source).sort();
const digest = createHash('sha256').update(files.map((name) => readFileSync(join(source, name), 'utf8')).join('\n'));
const folder = resolve(`node_modules/.cache/tollgate/go-${digest.digest('hex').slice(0, 16)}`);
const go = (args: readonly string[], timeout: number) =>
  spawnSync('go', args, {
    ...{ cwd: folder, timeout, encoding: 'utf8' },
    env: { ...process.env, GOFLAGS: '-mod=mod', GOWORK: 'off', GOTOOLCHAIN: 'local' },
  });

/**
 * Copies the program to another folder, as Go writes go.sum, and downloads the module. Returns the reason if it failed.
 */
function prepare(): string | undefined {
  mkdirSync(folder, { recursive: true });
  for (const name of files) cpSync(join(source, name), join(folder, name));
  const download = go(['mod', 'download'], 60_000);
  if (download.status === 0) return undefined;
  return download.error?.message ?? download.stderr.trim().split('\n').slice(-2).join(' ');
}

const missing = prepare();
if (missing) console.warn(`The Go SDK is not tested: ${missing}`);

describe.skipIf(missing)(`the Go SDK${missing ? ` (SKIPPED: ${missing})` : ''}`, () => {
  sdkTests({
    async open(serverUrl) {
      const { status, error, stderr } = go(['build', '-o', 'driver', '.'], 300_000);
      if (status !== 0) throw new Error(`go build: ${error?.message ?? stderr}`);
      return startDriver(join(folder, 'driver'), [serverUrl]);
    },
    // It has no null for optional fields, so it cannot send some of the inputs.
    unsendable: true,
  });
});
