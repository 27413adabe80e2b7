// Every method of the Python SDK, `unkey.py`, if Python and pip are installed, and its packages are here or can be
// downloaded.

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { pythonWith } from '../support/python.ts';
import { startDriver } from './driver.ts';
import { foreignMethods, methods } from './methods.ts';
import { sdkTests } from './suite.ts';

const python = pythonWith('test/sdks/python/requirements.txt');
const missing = 'missing' in python ? python.missing : undefined;
if (missing) console.warn(`The Python SDK is not tested: ${missing}`);

/** Services for Unkey's deployments, its portal and its workspaces, which Tollgate does not serve. */
const foreignServices = [
  ...['apps', 'deployments', 'domains', 'environments', 'gateway', 'github', 'internal', 'portal', 'projects'],
  ...['root_keys', 'workspace'],
];
/** Methods that `@unkey/api` does not have yet. */
const newMethods = ['permissions.updatePermission', 'permissions.updateRole'];

const open = async (serverUrl: string) => {
  if ('missing' in python) throw new Error(missing);
  return startDriver('python3', [...python.args, 'test/sdks/python/driver.py', serverUrl], python.env);
};

describe.skipIf(missing)(`the Python SDK${missing ? ` (SKIPPED: ${missing})` : ''}`, () => {
  test('Tollgate has all its methods except those that docs/moving.md names', async () => {
    const sdk = await open('http://127.0.0.1:9');
    const found = (await sdk.methods()).filter((method) => !foreignServices.includes(method.split('.')[0]!));
    await sdk.close();
    expect(found.sort()).toEqual([...Object.keys(methods), ...foreignMethods, ...newMethods].sort());
    const page = readFileSync('docs/moving.md', 'utf8');
    for (const method of newMethods) expect(page).toContain(`\`${method}\``);
  });

  sdkTests({ open });
});
