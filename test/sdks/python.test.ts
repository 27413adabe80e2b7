// Every method of the Python SDK, `unkey.py`, if Python and pip are installed, and its packages are here or can be
// downloaded.

import { describe, expect, test } from 'vitest';
import { pythonWith } from '../support/python.ts';
import { startDriver } from './driver.ts';
import { foreignMethods, methods, newerMethods } from './methods.ts';
import { sdkTests } from './suite.ts';

const python = pythonWith('test/sdks/python/requirements.txt');
const missing = 'missing' in python ? python.missing : undefined;
if (missing) console.warn(`The Python SDK is not tested: ${missing}`);

/** Services for Unkey's deployments and its portal, which Tollgate does not serve. */
const foreignServices = [
  ...['apps', 'deployments', 'domains', 'environments', 'gateway', 'github', 'internal', 'portal', 'projects'],
];

const open = async (serverUrl: string) => {
  if ('missing' in python) throw new Error(missing);
  return startDriver('python3', [...python.args, 'test/sdks/python/driver.py', serverUrl], python.env);
};

describe.skipIf(missing)(`the Python SDK${missing ? ` (SKIPPED: ${missing})` : ''}`, () => {
  test('Tollgate has all its methods except those of services that docs/moving.md names', async () => {
    const sdk = await open('http://127.0.0.1:9');
    const found = (await sdk.methods()).filter((method) => !foreignServices.includes(method.split('.')[0]!));
    await sdk.close();
    const ours = new Set([...Object.keys(methods), ...Object.keys(newerMethods), ...foreignMethods]);
    expect(found.sort()).toEqual([...ours].sort());
  });

  sdkTests({ open, isNewer: true });
});
