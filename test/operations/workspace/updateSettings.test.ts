import { describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';

const { call, createWorkspace } = harness();

async function newWorkspace() {
  const { rootKey } = await createWorkspace();
  return {
    rootKey,
    update: (input: InputOf<'workspace.updateSettings'>) => call('workspace.updateSettings', input, rootKey),
    settings: async () => (await call('workspace.getSettings', {}, rootKey)).data,
  };
}

describe('workspace.updateSettings: 200', () => {
  test('omitted settings are unchanged', async () => {
    const { update, settings } = await newWorkspace();
    expect(await update({ name: 'Ünï\n😀' })).toMatchObject({ status: 200, data: {} });
    expect(await settings()).toMatchObject({ name: 'Ünï\n😀', protectApis: false });
    await update({ protectApis: true });
    expect(await settings()).toMatchObject({ name: 'Ünï\n😀', protectApis: true });
    await update({});
    expect(await settings()).toMatchObject({ name: 'Ünï\n😀', protectApis: true });
    await update({ protectApis: false, name: 'a' });
    expect(await settings()).toMatchObject({ name: 'a', protectApis: false });
  });

  test('the event has both values', async () => {
    const { rootKey, update } = await newWorkspace();
    await update({ name: 'new', protectApis: true });
    const [event] = (await call('audit.listEvents', { order: 'desc', limit: 1 }, rootKey)).data;
    expect(event!.changes).toEqual([
      { field: 'name', before: 'test', after: 'new' },
      { field: 'protectApis', before: 'false', after: 'true' },
    ]);
  });

  test('prices are set as a whole, and removed by null', async () => {
    const { rootKey, update, settings } = await newWorkspace();
    const steps = [
      { from: 0, price: '0.0015' },
      { from: 1000, price: '0' },
    ];
    const prices = { currency: 'EUR', decimals: 2, rules: [{ unit: 'verification' as const, planId: 'pro', steps }] };
    await update({ prices });
    expect(await settings()).toMatchObject({ name: 'test', prices });
    await update({ name: 'other' });
    expect((await settings()).prices).toEqual(prices);
    const none = { currency: 'USD', decimals: 0, rules: [] };
    await update({ prices: none });
    expect((await settings()).prices).toEqual(none);
    await update({ prices: null });
    expect('prices' in (await settings())).toBe(false);
    await update({ prices: null });
    const [, removed, changed, , set] = (await call('audit.listEvents', { order: 'desc', limit: 5 }, rootKey)).data;
    expect(set!.changes).toEqual([{ field: 'prices', after: JSON.stringify(prices) }]);
    expect(removed!.changes).toEqual([{ field: 'prices', before: JSON.stringify(none) }]);
    expect(changed!.changes).toEqual([
      { field: 'prices', before: JSON.stringify(prices), after: JSON.stringify(none) },
    ]);
  });

  test('prices and me do not change each other', async () => {
    const { update, settings } = await newWorkspace();
    const prices = { currency: 'EUR', decimals: 2, rules: [] };
    await update({ me: {}, prices });
    expect(await settings()).toMatchObject({ me: {}, prices });
    await update({ me: null });
    expect(await settings()).toMatchObject({ prices });
    expect(await settings()).not.toHaveProperty('me');
    await update({ me: { meta: ['tier'] }, prices: null });
    expect(await settings()).toMatchObject({ me: { meta: ['tier'] } });
    expect(await settings()).not.toHaveProperty('prices');
  });

  test('another workspace is unchanged', async () => {
    const [one, two] = [await newWorkspace(), await newWorkspace()];
    await one.update({ name: 'one', protectApis: true });
    expect(await two.settings()).toMatchObject({ name: 'test', protectApis: false });
  });
});

describe('workspace.updateSettings: protectApis', () => {
  async function withApi(protectApis: boolean, keys: number) {
    const { rootKey, update } = await newWorkspace();
    await update({ protectApis });
    const { apiId } = (await call('apis.createApi', { name: 'payments' }, rootKey)).data;
    for (let index = 0; index < keys; index++) await call('keys.createKey', { apiId }, rootKey);
    return (confirm?: string) => call('apis.deleteApi', { apiId, ...(confirm !== undefined && { confirm }) }, rootKey);
  }

  test.each([undefined, '', 'Payments', 'payments '])(
    'an API with keys is not deleted with confirm %j',
    async (confirm) => {
      const remove = await withApi(true, 1);
      const answer = await remove(confirm);
      expect(answer).toMatchObject({ status: 412, code: 'precondition_failed' });
      expect(answer.error.detail).toContain('"payments"');
      expect((await remove('payments')).status).toBe(200);
    },
  );

  test('an API without keys, and one of a workspace that does not protect them, need no confirmation', async () => {
    expect((await (await withApi(true, 0))()).status).toBe(200);
    expect((await (await withApi(false, 1))()).status).toBe(200);
    expect((await (await withApi(false, 1))('another')).status).toBe(200);
  });
});

const step = { from: 0, price: '1' };
const pricesOf = (price: unknown, more: object = {}) => ({
  currency: 'EUR',
  decimals: 2,
  rules: [{ unit: 'credit', steps: [{ from: 0, price }], ...more }],
});

test.each<[string, object]>([
  ['name', { name: '' }],
  ['name', { name: 'x'.repeat(256) }],
  ['name', { name: null }],
  ['protectApis', { protectApis: 'yes' }],
  ['protectApis', { protectApis: null }],
  ['prices', { prices: 'none' }],
  ['prices.currency', { prices: { ...pricesOf('1'), currency: 'eur' } }],
  ['prices.decimals', { prices: { ...pricesOf('1'), decimals: 7 } }],
  ['prices.rules', { prices: { ...pricesOf('1'), rules: Array(51).fill(pricesOf('1').rules[0]) } }],
  ['prices.rules[0].unit', { prices: pricesOf('1', { unit: 'hold' }) }],
  ['prices.rules[0].steps', { prices: pricesOf('1', { steps: [] }) }],
  ['prices.rules[0].steps[0].price', { prices: pricesOf('0,5') }],
  ['prices.rules[0].steps[0].price', { prices: pricesOf(0.5) }],
  ['prices.rules[0].steps[0].from', { prices: pricesOf('1', { steps: [{ from: 1, price: '1' }] }) }],
  ['prices.rules[0].steps[1].from', { prices: pricesOf('1', { steps: [step, step] }) }],
  ['prices.rules[1]', { prices: { ...pricesOf('1'), rules: [...pricesOf('1').rules, ...pricesOf('2').rules] } }],
])('workspace.updateSettings: 400 for a wrong %s: %j', async (field, input) => {
  expect(await call('workspace.updateSettings', input as never)).toMatchObject(onlyInvalidAt(`body.${field}`));
});

describe('workspace.updateSettings: me', () => {
  test('is set as a whole, kept by other changes, and removed by null', async () => {
    const { update, settings } = await newWorkspace();
    expect(await settings()).not.toHaveProperty('me');
    const me = { origins: ['https://app.example.com', 'http://localhost:5173', 'https://[::1]:8443'], meta: ['tier'] };
    expect(await update({ me })).toMatchObject({ status: 200, data: {} });
    expect((await settings()).me).toEqual(me);
    await update({ name: 'other' });
    expect((await settings()).me).toEqual(me);
    await update({ me: {} });
    expect((await settings()).me).toEqual({});
    await update({ me: null });
    expect(await settings()).not.toHaveProperty('me');
    await update({ me: null });
    expect(await settings()).not.toHaveProperty('me');
  });

  test('the event has both values', async () => {
    const { rootKey, update } = await newWorkspace();
    await update({ me: { origins: [] } });
    await update({ me: null });
    const events = (await call('audit.listEvents', { order: 'desc', limit: 2 }, rootKey)).data;
    expect(events.map(({ changes }) => changes)).toEqual([
      [{ field: 'me', before: '{"origins":[]}' }],
      [{ field: 'me', after: '{"origins":[]}' }],
    ]);
  });

  test.each([
    '*',
    'null',
    'app.example.com',
    'https://app.example.com/',
    'https://app.example.com/path',
    'https://app.example.com?a',
    'https://app.example.com#a',
    'https://*.example.com',
    'https://APP.example.com',
    'https://app.example.com:443',
    'http://app.example.com:80',
    'https://user@app.example.com',
    'https://müller.example',
    'https://app.example.com:99999',
    'ftp://app.example.com',
    'https://',
    ' https://app.example.com',
    `https://${'a'.repeat(250)}.example`,
  ])('400 for the origin %j', async (origin) => {
    const input = { me: { origins: ['https://ok.example', origin] } };
    expect(await call('workspace.updateSettings', input)).toMatchObject(onlyInvalidAt('body.me.origins[1]'));
  });

  test.each<[string, object]>([
    ['body.me', { me: false }],
    ['body.me.enabled', { me: { enabled: true } }],
    ['body.me.origins', { me: { origins: Array.from({ length: 21 }, (_, index) => `https://${index}.example`) } }],
    ['body.me.meta', { me: { meta: Array(21).fill('tier') } }],
    ['body.me.meta[0]', { me: { meta: [''] } }],
  ])('400 at %s for %j', async (location, input) => {
    expect(await call('workspace.updateSettings', input as never)).toMatchObject(onlyInvalidAt(location));
  });
});
