// The settings of a workspace, as callers send and read them.

import Type from 'typebox';
import {
  currencyPattern,
  type Prices,
  pricedUnits,
  pricePattern,
  priceProblems,
  pricesMax,
} from '../../domain/price.ts';
import { invalid } from '../rules.ts';
import { ApiId, Fields, Int, OneOf, out, PlanId, Text } from '../schemas.ts';

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

export const settings = {
  name: Type.String({ minLength: 1, maxLength: 255, description: 'Name of the workspace.' }),
  protectApis: out.flag('`apis.deleteApi` of an API with keys then needs its name in `confirm`.'),
};

export const PriceFields = Fields(
  {
    currency: Text(3, 3, 'Code of the currency, such as `EUR`.', { documented: { pattern: currencyPattern } }),
    decimals: Int([0, 6], 'Decimals of an amount, to which it is rounded once, half up.'),
    rules: Type.Array(Rule, {
      maxItems: pricesMax.rules,
      description: `Of a unit the rule with the API and the plan applies, or else that with the API, with the plan, or with neither. Each has the unit, API and plan of no other; they name at most ${pricesMax.apis} APIs.`,
    }),
  },
  { description: 'Prices, by which `analytics.listCustomers` states what customers owe.' },
);

/** Checks rules that the schema cannot express. */
export function checkPrices(prices: Prices | null | undefined) {
  for (const [location, message] of prices ? priceProblems(prices) : [])
    throw invalid(`body.prices.${location}`, message);
}
