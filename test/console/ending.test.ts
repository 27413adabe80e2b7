// The cards of temporary limits and of root keys that end, in a real browser.

import { readFileSync } from 'node:fs';
import { beforeEach, expect, test } from 'vitest';
import { consoleInChromium, inChromium } from '../support/chromium.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';

const h = harness();
const { ok } = h;
const minute = 60_000;

inChromium(() => {
  const { page, goTo, open, card: cardOf, shot, violations, looksRight } = consoleInChromium(h);

  beforeEach(() => {
    h.clock.now = Date.now();
  });

  const card = () => cardOf('Temporary limits that end within 7 days');
  const rows = () => card().locator('tbody tr');

  test('nothing ends soon', async () => {
    await open('/attention');
    await card().getByText('No temporary limit ends soon').waitFor();
    expect(await card().getByRole('button', { name: 'CSV' }).isDisabled()).toBe(true);
  });

  test('what ends next, whose it is and what applies then, with links and a file', async () => {
    const until = Date.now() + 5 * hourMs + minute;
    const requests = { name: 'requests', limit: 10, duration: minute };
    const { keyId } = await h.createKey({ name: 'Billing', ratelimits: [requests] });
    await ok('keys.updateKey', { keyId, ratelimit: { name: 'requests', limit: 500, until } });
    const jobs = { name: 'jobs', limit: 3, duration: hourMs, type: 'concurrency' as const };
    await ok('identities.createIdentity', { externalId: 'ada', ratelimits: [{ ...jobs, until: until - hourMs }] });
    const override = { namespace: 'mail.send', identifier: 'guest_*', limit: 7, duration: minute };
    await ok('ratelimits.setOverride', { ...override, until: until + dayMs });
    await ok('ratelimits.setOverride', { ...override, identifier: 'later', until: until + 8 * dayMs });
    await open('/attention');
    await expect.poll(() => rows().count()).toBe(3);
    expect(await rows().allTextContents()).toEqual([
      'in 4 hoursadajobs3 slots, each for 1 h at mostnone',
      'in 5 hoursBillingrequests500 in any 1 min10 in any 1 min',
      'tomorrowmail.send: guest_*override7 in any 1 minnone',
    ]);
    const [file] = await Promise.all([
      page().waitForEvent('download'),
      card().getByRole('button', { name: 'CSV' }).click(),
    ]);
    expect(
      readFileSync((await file.path())!, 'utf8')
        .trim()
        .split('\n')
        .map((line) => line.trim()),
    ).toEqual([
      'Ends,Kind,Of,Limit,Now,Then',
      `${new Date(until - hourMs).toISOString()},identity,ada,jobs,"3 slots, each for 1 h at most",none`,
      `${new Date(until).toISOString()},key,${keyId},requests,500 in any 1 min,10 in any 1 min`,
      `${new Date(until + dayMs).toISOString()},override,mail.send: guest_*,override,7 in any 1 min,none`,
    ]);
    for (const [link, path] of [
      ['Billing', `/keys/${keyId}`],
      ['ada', '/customers/ada'],
      ['mail.send: guest_*', '/rate-limits/mail.send'],
    ] as const) {
      await goTo('/attention');
      await card().getByRole('link', { name: link }).click();
      await expect.poll(() => page().url()).toContain(path);
    }
  });

  test('a root key in use that ends tomorrow is in Attention, System and marked in Access', async () => {
    const expires = Date.now() + dayMs + hourMs;
    const input = { name: 'shop', permissions: ['api.*.verify_key'], expires };
    const { key } = await ok('rootKeys.createRootKey', input);
    await ok('rootKeys.createRootKey', { ...input, name: 'unused' });
    await open('/attention');
    const rootKeys = () => page().locator('section.card', { hasText: 'Root keys in use that end within 14 days' });
    await rootKeys().getByText('No root key that is in use ends soon').waitFor();
    await h.call('keys.verifyKey', { key: 'unknown' }, key);
    for (const path of ['/attention', '/system']) {
      await goTo(path);
      await expect
        .poll(() => rootKeys().locator('tbody tr').allTextContents())
        .toEqual([expect.stringMatching(/^tomorrow.*shop/)]);
      await shot(`ending-root-keys${path.replace('/', '-')}`);
    }
    await goTo('/access');
    await page().getByText('Ends tomorrow').first().waitFor();
    expect(await page().getByText('Ends tomorrow').count()).toBe(2);
    await shot('ending-access');
    expect(await violations()).toEqual([]);
  });

  test('what the root key may not read is left out, with the grant', async () => {
    const ofKeys = ['api.*.read_key', 'api.*.read_api'];
    await open('/attention', await h.createRootKey([...ofKeys, 'ratelimit.ns_mail.read_override']));
    await expect.poll(() => rows().count()).toBe(1);
    await card()
      .getByText('Limits of customers are left out: your root key lacks the grant identity.*.read_identity.')
      .waitFor();
    await card()
      .getByText('Overrides are left out: your root key lacks the grant ratelimit.*.read_override.')
      .waitFor();
    expect(await card().getByText('Limits of keys are left out').count()).toBe(0);
    expect(await page().getByText('Root keys in use that end').count()).toBe(0);
  });

  test('on a narrow screen and in both themes', async () => {
    await open('/attention');
    await rows().first().waitFor();
    await looksRight('ending');
  });
});
