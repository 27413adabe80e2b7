// The settings of a workspace, as callers send and read them.

import Type, { type Static } from 'typebox';
import { currencyPattern, pricedUnits, pricePattern, priceProblems, pricesMax } from '../../domain/price.ts';
import { invalid } from '../rules.ts';
import { ApiId, DescribedFields, Fields, Int, OneOf, out, PlanId, Text } from '../schemas.ts';

const Origin = Text(1, 255, 'As browsers send it: `https://app.example.com`, without a path.');

/** Of `GET /v2/me`. */
const Me = DescribedFields(
  'Lets the holder of a key read its limits, credits and usage with the key itself, by `GET /v2/me`. Absent: that is off.',
  {
    origins: Type.Optional(
      Type.Array(Origin, {
        maxItems: 20,
        description:
          'Origins whose pages may read the answer in a browser. An origin that no browser sends is refused.',
      }),
    ),
    meta: Type.Optional(
      Type.Array(Text(1, 100, 'Name of a member.'), {
        maxItems: 20,
        description:
          'Top-level members of the metadata of the key and of its plan that are in the answer. By default none.',
      }),
    ),
  },
);

const Step = Fields({
  from: Int(0, 'The first unit of the step: 0 in the first step, then above that of the step before.'),
  price: Text(1, 16, 'Price of each unit of the step, as a decimal number, such as `0.0015`.', {
    documented: { pattern: pricePattern },
  }),
});
const Rule = Fields({
  unit: OneOf(pricedUnits, 'What is charged: each valid verification, or each credit that was spent.'),
  apiId: Type.Optional(ApiId),
  planId: Type.Optional(PlanId),
  steps: Type.Array(Step, { minItems: 1, maxItems: pricesMax.steps, description: 'Prices by number of units.' }),
});

const Prices = DescribedFields('Prices, by which `analytics.listCustomers` states what customers owe.', {
  currency: Text(3, 3, 'Code of the currency, such as `EUR`.', { documented: { pattern: currencyPattern } }),
  decimals: Int([0, 6], 'Decimals of an amount, to which it is rounded once, half up.'),
  rules: Type.Array(Rule, {
    maxItems: pricesMax.rules,
    description: `Of a unit the rule with the API and the plan applies, or else that with the API, with the plan, or with neither. Each has the unit, API and plan of no other; they name at most ${pricesMax.apis} APIs.`,
  }),
});

export const settings = {
  name: Type.String({ minLength: 1, maxLength: 255, description: 'Name of the workspace.' }),
  protectApis: out.flag('`apis.deleteApi` of an API with keys then needs its name in `confirm`.'),
  me: Me,
  prices: Prices,
};

/** Refuses origins that no browser sends, as they would never be allowed, and prices that the schema cannot exclude. */
export function checkSettings({ me, prices }: Checked) {
  for (const [index, origin] of (me?.origins ?? []).entries()) {
    const isOrigin = /^https?:[^*]+$/.test(origin) && URL.canParse(origin) && new URL(origin).origin === origin;
    if (isOrigin) continue;
    const fix = 'Write scheme, host in lower case, and a port that is not the usual one: https://app.example.com.';
    throw invalid(`body.me.origins[${index}]`, 'is not an origin as browsers send it', fix);
  }
  for (const [location, message] of prices ? priceProblems(prices) : [])
    throw invalid(`body.prices.${location}`, message);
}

interface Checked {
  me?: Static<typeof Me> | null | undefined;
  prices?: Static<typeof Prices> | null | undefined;
}
