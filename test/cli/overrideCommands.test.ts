// The commands about overrides: on the store and over HTTP, with the same results.

import { expect, test } from 'vitest';
import { refused } from '../support/cli.ts';
import { cellsOf, describeWays, served } from '../support/cliWays.ts';
import { dayMs, harness } from '../support/harness.ts';

const app = harness();
const url = served(app);

let made = 0;

describeWays(app, url, ({ run, lines, json }) => {
  const timeOf = (line: string) => Date.parse(/\d{4}-[\d-]+T[\d:.]+Z/.exec(line)![0]);

  test('an override is set, read, listed and deleted', async () => {
    const namespace = `mail ${++made}`;
    expect(await lines('override', 'set', namespace, 'user_42', '10', '1m')).toEqual([
      `user_42 in ${namespace} has 10 per 1m.`,
    ]);
    const [heading, row] = await lines('override', 'get', namespace, 'user_42');
    expect(cellsOf(heading!)).toEqual(['IDENTIFIER', 'LIMIT', 'UNTIL', 'THEN']);
    expect(row).toBe('user_42     10 per 1m');
    await lines('override', 'set', namespace, 'org_*', '0', '1h');
    expect((await lines('override', 'list', namespace)).slice(1).map(cellsOf)).toEqual([
      ['user_42', '10 per 1m'],
      ['org_*', '0 per 1h'],
    ]);
    expect((await lines('override', 'list', namespace, '--limit', '1')).at(-1)).toContain('… and more.');
    expect(await json('override', 'list', namespace)).toMatchObject([{ identifier: 'user_42' }, { limit: 0 }]);
    expect(await lines('override', 'delete', namespace, 'user_42', '--confirm', 'user_42')).toEqual([
      `Deleted the override of user_42 in ${namespace}.`,
    ]);
    expect(await run(['override', 'get', namespace, 'user_42'])).toMatchObject({ code: 3 });
    await lines('override', 'delete', namespace, 'org_*', '--confirm', 'org_*');
    expect(await lines('override', 'list', namespace)).toEqual(['No overrides found.']);
  });

  test('--for and --until: the list has the end, and what applies then', async () => {
    const namespace = `mail ${++made}`;
    await lines('override', 'set', namespace, 'user_42', '10', '1m');
    const before = Date.now();
    const [line] = await lines('override', 'set', namespace, 'user_42', '500', '2m', '--for', '1d');
    const until = timeOf(line!);
    expect(line).toMatch(/ has 500 per 2m until \S+Z, then its permanent override, if it has one\.$/);
    expect(until).toBeGreaterThanOrEqual(before + dayMs);
    expect(until).toBeLessThanOrEqual(Date.now() + dayMs);
    const date = new Date(Date.now() + 10 * dayMs).toISOString().slice(0, 10);
    expect(await json('override', 'set', namespace, 'guest_*', '5', '1m', '--until', date)).toEqual({
      overrideId: expect.stringMatching(/^rlor_/),
      until: Date.parse(date),
    });
    expect((await lines('override', 'list', namespace)).slice(1).map(cellsOf)).toEqual([
      ['user_42', '500 per 2m', new Date(until).toISOString().replace('.000Z', 'Z'), '10 per 1m'],
      ['guest_*', '5 per 1m', `${date}T00:00:00Z`, 'none'],
    ]);
    expect(await json('override', 'get', namespace, 'user_42')).toMatchObject({
      until,
      former: { limit: 10, duration: 60_000 },
    });
    const { overrideId } = await json('override', 'get', namespace, 'user_42');
    const [, event] = await lines('audit', '--resource', overrideId);
    expect(event).toContain(`until:  → ${new Date(until).toISOString().replace('.000Z', 'Z')}`);
    app.clock.advance(dayMs + 60_000);
    expect(await app.ok('ratelimits.getOverride', { namespace, identifier: 'user_42' })).toMatchObject({ limit: 10 });
  });

  test.each([
    [['--for', '1y'], '--for 1y is not a duration. Use, for example, 90s, 15m, 12h, 30d or 1w.'],
    [['--for', '0s'], '--for 0s ends at once.'],
    [['--for', '367d'], '--for must be at most 366 days ahead'],
    [['--until', '2020-01-01'], '--until 2020-01-01 is in the past.'],
    [['--until', 'tomorrow'], '--until tomorrow is not valid. Use a date'],
    [['--until', '2099-01-01'], '--until must be at most 366 days ahead'],
    [['--for', '1d', '--until', '2099-01-01'], '--for and --until both set the end. Leave one out.'],
  ])('%j is refused and changes nothing', async (options, message) => {
    const namespace = `mail ${++made}`;
    await lines('override', 'set', namespace, 'user_42', '10', '1m');
    await refused(run(['override', 'set', namespace, 'user_42', '500', '1m', ...options]), `tollgate: ${message}`);
    expect(await json('override', 'get', namespace, 'user_42')).not.toHaveProperty('until');
  });

  test('an override may be a quota', async () => {
    const namespace = `mail ${++made}`;
    const set = await lines('override', 'set', namespace, 'user_42', '10', '--per', 'week', '--from', '2026-01-07');
    expect(set).toEqual([`user_42 in ${namespace} has 10 per week from 2026-01-07T00:00:00Z.`]);
    expect((await lines('override', 'get', namespace, 'user_42'))[1]).toContain('10 per week from 2026-01-07');
  });

  test.each([
    [['lots', '1m'], '<limit> lots is not a whole number.'],
    [['5', '1'], '[duration] 1 is not a duration.'],
    [['5', '1ms'], '[duration] must be '],
    [['5'], '[duration] is required: a limit has a duration, or as a quota a period'],
  ])('a limit of %j is refused', async (limit, message) => {
    await refused(run(['override', 'set', 'mail', 'user_42', ...limit]), `tollgate: ${message}`);
  });
});
