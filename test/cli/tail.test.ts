// The tail on the command line: on the store and over HTTP, with the same results.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { refused, runCli } from '../support/cli.ts';
import { describeWays, served } from '../support/cliWays.ts';
import { harness } from '../support/harness.ts';
import { dirOfTest } from '../support/ofFile.ts';

const app = harness();
const url = served(app);

describeWays(app, url, ({ run, lines, json }, way) => {
  /** Repeats requests until the command has ended: it hears only those after its start. */
  async function heard<Result>(command: Promise<Result>, request: () => Promise<unknown>): Promise<Result> {
    let isEnded = false;
    const ended = command.finally(() => {
      isEnded = true;
    });
    while (!isEnded) {
      await app.store.tail.refresh();
      await request();
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return ended;
  }

  test('decisions are printed as they happen', async () => {
    const { key, keyId } = await app.createKey({ externalId: 'tailed' });
    const verify = () => app.ok('keys.verifyKey', { key, tags: ['a\u2028b'], permissions: 'not.held' });
    const refused = ['--owner', 'tailed', '--outcome', 'INSUFFICIENT_PERMISSIONS'];
    const verified = await heard(lines('tail', '--limit', '2', ...refused), verify);
    expect(verified).toHaveLength(2);
    for (const line of verified)
      expect(line).toMatch(
        new RegExp(`^\\d{4}-\\S+Z  INSUFFICIENT_PERMISSIONS  ${keyId}  tailed  a\\\\u2028b  [\\d.]+ ms`),
      );
    expect(await heard(json('tail', '--limit', '1', '--key', keyId), verify)).toMatchObject({
      event: 'verification',
      keyId,
      tags: ['a\u2028b'],
      sample: 1,
    });
    const check = () =>
      app.ok('ratelimits.limit', { namespace: `tail of ${way}`, identifier: 'x', limit: 1, duration: 60_000 });
    await check();
    expect((await heard(lines('tail', '--limit', '1', '--namespace', `tail of ${way}`), check))[0]).toMatch(
      new RegExp(`Z  BLOCKED +tail of ${way}  x  0 of 1 left  cost 1  `),
    );
  });

  test.each([
    [['--limit', 'many'], 'is not a whole number'],
    [['--limit', '0'], '--limit must be at least 1'],
    [['--outcome', 'BAD'], '--outcome must '],
    [['--namespace', 'a', '--key', 'key_1'], '--key '],
  ])('tail %j is refused', async (args, message) => {
    await refused(run(['tail', ...args]), message);
  });
});

test('a tail ends with an error when its root key is deleted', async () => {
  const { rootKeyId, key } = await app.ok('rootKeys.createRootKey', { permissions: ['api.*.read_analytics'] });
  const ended = runCli(['tail'], { TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: key });
  await expect.poll(() => app.store.tail.isOpen, { timeout: 5000 }).toBe(true);
  await app.ok('rootKeys.deleteRootKey', { rootKeyId });
  expect(await ended).toEqual({ code: 1, out: '', err: 'tollgate: The server ended the tail: unauthorized.\n' });
});

test('a tail does not start the embedded Redis', async () => {
  const folder = dirOfTest();
  mkdirSync(join(folder, 'redis'));
  await refused(runCli(['tail'], { TOLLGATE_DATA_DIR: folder }), 'No server runs on');
});
