import { expect, test } from 'vitest';
import { owing, type PriceRule, type Prices, priceProblems, pricesMax, sumsOwed } from '../../src/domain/price.ts';

const flat = (price: string, more: Partial<PriceRule> = {}): PriceRule => ({
  unit: 'verification',
  steps: [{ from: 0, price }],
  ...more,
});
const pricesOf = (rules: PriceRule[], decimals = 2): Prices => ({ currency: 'EUR', decimals, rules });
const used = (verification: number, credit = 0, apiId?: string) => ({ apiId, verification, credit });
const amountOf = (prices: Prices, units: ReturnType<typeof used>[], planId?: string) =>
  owing(prices)(planId, units).amount;

test.each<[price: string, units: number, decimals: number, amount: string]>([
  ['0.001', 31_200, 2, '31.20'],
  ['1', 0, 2, '0.00'],
  ['0.000001', 1, 2, '0.00'],
  // Half up, once: 0.005 is 0.01, and 0.004999 is 0.00.
  ['0.005', 1, 2, '0.01'],
  ['0.004999', 1, 2, '0.00'],
  ['0.0015', 3, 2, '0.00'],
  ['0.0015', 10, 2, '0.02'],
  ['0.5', 1, 0, '1'],
  ['0.499999', 1, 0, '0'],
  ['12', 3, 0, '36'],
  ['0.000001', 1, 6, '0.000001'],
  // 0.1 + 0.2 is no float here.
  ['0.1', 3, 6, '0.300000'],
  ['007.50', 2, 2, '15.00'],
])('%s for each of %d, with %d decimals, is %s', (price, units, decimals, amount) => {
  expect(amountOf(pricesOf([flat(price)], decimals), [used(units)])).toBe(amount);
});

test('the largest amounts are exact', () => {
  const units = Number.MAX_SAFE_INTEGER;
  const exact = BigInt(units) * 999_999_999_999_999n;
  const digits = `${exact}`;
  expect(amountOf(pricesOf([flat('999999999.999999')], 6), [used(units)])).toBe(
    `${digits.slice(0, -6)}.${digits.slice(-6)}`,
  );
});

test('each unit has the price of its step', () => {
  const steps = [
    { from: 0, price: '0' },
    { from: 1000, price: '0.01' },
    { from: 5000, price: '0.001' },
  ];
  const prices = pricesOf([{ unit: 'verification', steps }], 3);
  const cases = { 0: '0.000', 1000: '0.000', 1001: '0.010', 5000: '40.000', 5001: '40.001', 6000: '41.000' };
  for (const [units, amount] of Object.entries(cases))
    expect(amountOf(prices, [used(Number(units))]), units).toBe(amount);
});

test('of a unit the rule with the API and the plan applies, or else that with the API, the plan, or neither', () => {
  const rules = [
    flat('1'),
    flat('2', { planId: 'pro' }),
    flat('3', { apiId: 'api_a' }),
    flat('4', { apiId: 'api_a', planId: 'pro' }),
    flat('0.5', { unit: 'credit' }),
  ];
  const prices = pricesOf(rules, 1);
  expect(amountOf(prices, [used(1)])).toBe('1.0');
  expect(amountOf(prices, [used(1)], 'pro')).toBe('2.0');
  expect(amountOf(prices, [used(1)], 'free')).toBe('1.0');
  expect(amountOf(prices, [used(1, 0, 'api_a')])).toBe('3.0');
  expect(amountOf(prices, [used(1, 0, 'api_a')], 'pro')).toBe('4.0');
  expect(amountOf(prices, [used(1, 3, 'api_b')])).toBe('2.5');
  expect(amountOf(prices, [used(1, 0, 'api_a'), used(10)], 'pro')).toBe('24.0');
  // A unit without a rule costs nothing.
  expect(amountOf(pricesOf([flat('3', { apiId: 'api_a' })]), [used(5, 5)])).toBe('0.00');
});

test('the steps of a rule count its APIs together, and those of another rule apart', () => {
  const steps = [
    { from: 0, price: '1' },
    { from: 10, price: '0' },
  ];
  const rule = { unit: 'verification', steps } as const;
  const two = pricesOf([{ ...rule, steps: [...steps] }]);
  expect(amountOf(two, [used(8, 0, 'api_a'), used(8)])).toBe('10.00');
  const apart = pricesOf([
    { ...rule, steps: [...steps] },
    { ...rule, steps: [...steps], apiId: 'api_a' },
  ]);
  expect(amountOf(apart, [used(8, 0, 'api_a'), used(8)])).toBe('16.00');
});

test('amounts are added up by currency, with the decimals of the most precise one', () => {
  const owed = (amount: string, currency = 'EUR') => ({ amount, currency });
  expect(sumsOwed([])).toEqual([]);
  expect(sumsOwed([owed('0.10'), owed('0.20'), owed('31.20')])).toEqual([owed('31.50')]);
  expect(sumsOwed([owed('2'), owed('40')])).toEqual([owed('42')]);
  expect(sumsOwed([owed('0.000001'), owed('9007199254740993.000000')])).toEqual([owed('9007199254740993.000001')]);
  // The prices were changed between two pages of a list.
  expect(sumsOwed([owed('2'), owed('0.05'), owed('300', 'JPY'), owed('1.5')])).toEqual([
    owed('3.55'),
    owed('300', 'JPY'),
  ]);
});

const problemsOf = (prices: Prices) => [...priceProblems(prices)].map(([location]) => location);

test.each<[location: string, prices: Prices]>([
  ['currency', { ...pricesOf([]), currency: 'eur' }],
  ['currency', { ...pricesOf([]), currency: 'E€R' }],
  ['rules[1]', pricesOf([flat('1', { apiId: 'api_a' }), flat('2', { apiId: 'api_a' })])],
  ['rules[0].steps[0].from', pricesOf([{ unit: 'credit', steps: [{ from: 1, price: '1' }] }])],
  [
    'rules[0].steps[1].from',
    pricesOf([
      {
        unit: 'credit',
        steps: [
          { from: 0, price: '1' },
          { from: 0, price: '2' },
        ],
      },
    ]),
  ],
  ...['', '.5', '1.', '-1', '1e3', '1,5', '0.0000001', '1234567890', ' 1', '1\n'].map((price): [string, Prices] => [
    'rules[0].steps[0].price',
    pricesOf([flat(price)]),
  ]),
  [
    `rules[${pricesMax.apis}].apiId`,
    pricesOf(Array.from({ length: pricesMax.apis + 1 }, (_, api) => flat('1', { apiId: `api_${api}` }))),
  ],
])('wrong prices are named: %s of %j', (location, prices) => {
  expect(problemsOf(prices)).toEqual([location]);
});

test('right prices have no problem', () => {
  const apis = Array.from({ length: pricesMax.apis }, (_, api) => flat('999999999.999999', { apiId: `api_${api}` }));
  expect(problemsOf(pricesOf([...apis, flat('0', { apiId: 'api_1', planId: 'pro' }), flat('1')]))).toEqual([]);
});
