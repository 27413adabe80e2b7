// What customers owe, by the prices of a workspace. Amounts are whole micro units of the currency, as BigInt. The
// amount of a customer is rounded once, half up, to the decimals of the prices.

export const pricesMax = { rules: 50, steps: 20, apis: 10 };
const microDecimals = 6;
export const currencyPattern = '^[A-Z]{3}$';
export const pricePattern = `^[0-9]{1,9}(\\.[0-9]{1,${microDecimals}})?$`;
const [isCurrency, isPrice] = [new RegExp(currencyPattern), new RegExp(pricePattern)];

export const pricedUnits = ['verification', 'credit'] as const;
type Unit = (typeof pricedUnits)[number];
export interface PriceRule {
  unit: Unit;
  apiId?: string | undefined;
  planId?: string | undefined;
  /** Units beyond the first `from` have this price, up to the next step. */
  steps: { from: number; price: string }[];
}
export interface Prices {
  currency: string;
  decimals: number;
  rules: PriceRule[];
}
export interface Owed {
  /** Such as `31.20`. */
  amount: string;
  currency: string;
}

const keyOf = ({ unit, apiId = '', planId = '' }: Omit<PriceRule, 'steps'>) => `${unit} ${apiId} ${planId}`;

/** The APIs that rules name, each once: their usage is counted apart from that of the others. */
export const apisOf = ({ rules }: Prices): string[] => [...new Set(rules.flatMap(({ apiId }) => apiId ?? []))];

/** What is wrong with prices: the place of each field, and a message. */
export function* priceProblems(prices: Prices): Generator<[location: string, message: string]> {
  if (!isCurrency.test(prices.currency)) yield ['currency', 'must be a code of three capital letters, such as EUR'];
  const keys = prices.rules.map(keyOf);
  const tooMany = apisOf(prices).slice(pricesMax.apis);
  for (const [index, { apiId = '', steps }] of prices.rules.entries()) {
    const same = keys.indexOf(keys[index]!);
    if (same < index) yield [`rules[${index}]`, `has the unit, API and plan of rules[${same}]`];
    if (tooMany.includes(apiId)) yield [`rules[${index}].apiId`, `must be one of the ${pricesMax.apis} APIs before it`];
    for (const [step, { from, price }] of steps.entries()) {
      const [location, before] = [`rules[${index}].steps[${step}]`, steps[step - 1]?.from];
      if (before === undefined && from !== 0) yield [`${location}.from`, 'must be 0 in the first step'];
      if (before !== undefined && from <= before)
        yield [`${location}.from`, `must be above ${before}, the step before`];
      if (!isPrice.test(price))
        yield [`${location}.price`, 'must be a number such as "0.0015", with at most 9 digits and 6 decimals'];
    }
  }
}

/** An amount or a price in millionths of its currency. */
export const microOf = (price: string): bigint => {
  const [whole = '', part = ''] = price.split('.');
  return BigInt(whole + part.padEnd(microDecimals, '0'));
};

/** Each unit has the price of its step: graduated. */
const graduated = (units: number, steps: PriceRule['steps']): bigint =>
  steps.reduce((sum, { from, price }, at) => {
    const inStep = Math.min(units, steps[at + 1]?.from ?? units) - from;
    return inStep > 0 ? sum + BigInt(inStep) * microOf(price) : sum;
  }, 0n);

function textOf(micro: bigint, decimals: number): string {
  const unit = 10n ** BigInt(microDecimals - decimals);
  const digits = `${(micro + unit / 2n) / unit}`.padStart(decimals + 1, '0');
  return decimals === 0 ? digits : `${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
}

/** Units of one API that rules name, or of all others. */
type Used = { apiId: string | undefined } & Record<Unit, number>;

/**
 * Returns a function for what a customer owes. Of a unit the rule with its API and plan applies, or else that with its
 * API, with its plan, or with neither. The steps of a rule count the units of all its APIs together.
 */
export function owing({ currency, decimals, rules }: Prices) {
  const byKey = new Map(rules.map((rule) => [keyOf(rule), rule]));
  return (planId: string | undefined, used: readonly Used[]): Owed => {
    const units = new Map<PriceRule, number>();
    for (const { apiId, ...row } of used)
      for (const unit of pricedUnits) {
        const fitting = [{ unit, apiId, planId }, { unit, apiId }, { unit, planId }, { unit }];
        const rule = fitting.map((one) => byKey.get(keyOf(one))).find((one) => one !== undefined);
        if (rule) units.set(rule, (units.get(rule) ?? 0) + row[unit]);
      }
    const micro = [...units].reduce((sum, [{ steps }, count]) => sum + graduated(count, steps), 0n);
    return { amount: textOf(micro, decimals), currency };
  };
}

/** The sum in each currency. Prices may change while pages of amounts are read. */
export function sumsOwed(amounts: readonly Owed[]): Owed[] {
  const sums = new Map<string, { micro: bigint; decimals: number }>();
  for (const owed of amounts) {
    const { micro, decimals } = sums.get(owed.currency) ?? { micro: 0n, decimals: 0 };
    const own = owed.amount.split('.')[1]?.length ?? 0;
    sums.set(owed.currency, { micro: micro + microOf(owed.amount), decimals: Math.max(decimals, own) });
  }
  return [...sums].map(([currency, { micro, decimals }]) => ({ amount: textOf(micro, decimals), currency }));
}
