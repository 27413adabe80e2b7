// The command `temporary`: on the store and over HTTP, with the same results.

import { expect, test } from 'vitest';
import { cellsOf, describeWays, served } from '../support/cliWays.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';

const app = harness();
const url = served(app);
let made = 0;

describeWays(app, url, ({ run, lines, json }) => {
  test('prints what ends next, whose it is, and what applies then', async () => {
    const { apiId, keyId } = await app.createKey({
      name: 'Ada',
      ratelimits: [{ name: 'requests', limit: 10, duration: 60_000 }],
    });
    const until = app.clock.now + hourMs;
    await app.ok('keys.updateKey', { keyId, ratelimit: { name: 'requests', limit: 500, until } });
    const externalId = `owner_${++made}`;
    const jobs = { name: 'jobs', limit: 3, duration: dayMs, type: 'concurrency' as const, until: until + hourMs };
    await app.ok('identities.createIdentity', { externalId, ratelimits: [jobs] });
    const namespace = `mail ${made}`;
    const override = { namespace, identifier: 'user_*', limit: 7, duration: hourMs, until: until + 10 * dayMs };
    await app.ok('ratelimits.setOverride', override);
    const timeText = (ms: number) => new Date(ms).toISOString().replace('.000Z', 'Z');

    const named = '(only when named)';
    const ofKey = [timeText(until), keyId, 'Ada', 'requests', `500 per 1m ${named}`, `10 per 1m ${named}`];
    const ofIdentity = [timeText(until + hourMs), externalId, 'jobs', `3 slots for 1d ${named}`, 'none'];
    const ofOverride = [timeText(override.until), `${namespace}: user_*`, 'override', '7 per 1h', 'none'];
    const [heading, ...rows] = await lines('temporary');
    expect(cellsOf(heading!)).toEqual(['ENDS', 'OF', 'KEY NAME', 'LIMIT', 'NOW', 'THEN']);
    // The workspace has those of other tests too.
    const owners = [keyId, externalId, `${namespace}: user_*`];
    const own = (all: string[]) => all.map(cellsOf).filter(([, owner]) => owners.includes(owner!));
    expect(own(rows)).toEqual([ofKey, ofIdentity, ofOverride]);
    expect(own(await lines('temporary', '--within', '7d'))).toEqual([ofKey, ofIdentity]);
    expect(own(await lines('temporary', '--kind', 'identity', 'override'))).toEqual([ofIdentity, ofOverride]);
    expect(own(await lines('temporary', '--api', apiId))).toEqual([ofKey]);
    expect(own(await lines('temporary', '--namespace', namespace))).toEqual([ofOverride]);
    expect(await json('temporary', '--api', apiId)).toEqual(await app.ok('ratelimits.listTemporary', { apiId }));
    expect((await lines('temporary', '--limit', '1')).at(-1)).toContain('… and more.');
    await app.ok('keys.deleteKey', { keyId });
    expect(await lines('temporary', '--api', apiId)).toEqual(['No temporary limits and overrides found.']);
  });

  test('errors name the options', async () => {
    const wrong = [
      [['--within', 'soon'], '--within soon is not a duration.'],
      [['--kind', 'api'], '--kind'],
      [['--kind', 'key', '--namespace', 'mail'], '--namespace cannot be sent together with --kind.'],
    ] as const;
    for (const [options, message] of wrong) {
      const { code, err } = await run(['temporary', ...options]);
      expect([code, err]).toEqual([2, expect.stringContaining(message)]);
    }
  });
});
