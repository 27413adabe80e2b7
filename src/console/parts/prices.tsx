// Prices of the workspace: their form, and what single customers owe.

import { useState } from 'preact/hooks';
import { type Owed, owing, type PriceRule, type Prices, priceProblems, pricesMax } from '../../domain/price.ts';
import { useData } from '../api.ts';
import { count } from '../format.ts';
import type { Period } from '../period.ts';
import type { Identity, Settings, UsageRow } from '../records.ts';
import { may } from '../session.ts';
import { ApiSelect } from './apiSelect.tsx';
import { Button, SelectField, TextField } from './basic.tsx';
import { Act } from './dialog.tsx';
import { wholeOf } from './keyForm.tsx';
import { PlanField } from './plan.tsx';
import { SettingsDialog } from './settings.tsx';

/** The prices, if there are any and the root key may read them. */
export const usePrices = (): Prices | undefined =>
  useData<Settings>('workspace.getSettings', may('workspace', 'read_settings') ? {} : undefined).data?.prices;

export const owedText = ({ amount, currency }: Owed): string => {
  const [whole = '', part] = amount.split('.');
  return `${count(BigInt(whole))}${part === undefined ? '' : `.${part}`} ${currency}`;
};

interface OwedProps {
  externalId: string;
  /** The customers of the table, who share a request. */
  of: readonly string[];
  period: Pick<Period, 'start' | 'end'>;
  within?: object | undefined;
}

/** What a customer owes for a period. Empty without prices. */
export function OwedBy({ externalId, of, period: { start, end }, within }: OwedProps) {
  const prices = usePrices();
  const groupBy = ['externalId', 'apiId', 'outcome'];
  const input = { ...within, externalIds: of, start, end, granularity: 'total', groupBy };
  const usage = useData<UsageRow[]>('analytics.getVerifications', prices && input, 30_000);
  const mayRead = prices && may('identity', 'read_identity');
  const customer = useData<Identity>('identities.getIdentity', mayRead ? { identity: externalId } : undefined);
  // A customer that was deleted has no plan.
  if (!prices || !usage.data || !(customer.data || customer.failure?.status === 404)) return null;
  const used = usage.data
    .filter((row) => row.externalId === externalId)
    .map((row) => ({
      apiId: row.apiId,
      verification: row.outcome === 'VALID' ? row.count : 0,
      credit: row.spentCredits,
    }));
  return <span class="number">{owedText(owing(prices)(customer.data?.planId, used))}</span>;
}

interface RuleDraft extends Omit<PriceRule, 'steps'> {
  steps: { from: string; price: string }[];
}

const draftOf = ({ steps, ...rule }: PriceRule): RuleDraft => ({
  ...rule,
  steps: steps.map(({ from, price }) => ({ from: `${from}`, price })),
});
const newRule: RuleDraft = { unit: 'verification', steps: [{ from: '0', price: '' }] };

const ruleOf = ({ unit, apiId, planId, steps }: RuleDraft): PriceRule => ({
  unit,
  ...(apiId && { apiId }),
  ...(planId && { planId }),
  steps: steps.map(({ from, price }) => ({ from: wholeOf(from) ?? -1, price: price.trim() })),
});

/** What is wrong with a field of the prices, by its place in the request. */
type WrongAt = (place: string) => string | undefined;

const noStep = { from: '', price: '' };

/** The steps, and fields for one more. A step without texts is removed. */
function Steps(props: { steps: RuleDraft['steps']; set: (steps: RuleDraft['steps']) => void; wrongAt: WrongAt }) {
  const { steps, set, wrongAt } = props;
  const shown = [...steps, noStep].slice(0, pricesMax.steps);
  const change = (index: number, changes: object) =>
    set(
      shown
        .map((step, at) => (at === index ? { ...step, ...changes } : step))
        .filter(({ from, price }) => from !== '' || price !== ''),
    );
  return shown.map((step, index) => (
    <div class="fields" key={index}>
      <TextField
        label={`Step ${index + 1}: beyond the first`}
        inputMode="numeric"
        value={step.from}
        set={(from) => change(index, { from })}
        wrong={wrongAt(`steps[${index}].from`)}
      />
      <TextField
        label="Price of each"
        inputMode="decimal"
        value={step.price}
        set={(price) => change(index, { price })}
        wrong={wrongAt(`steps[${index}].price`)}
        placeholder="0.0015"
      />
    </div>
  ));
}

function Rule(props: { rule: RuleDraft; set: (rule: RuleDraft) => void; remove: () => void; wrongAt: WrongAt }) {
  const { rule, set, remove, wrongAt } = props;
  return (
    <fieldset class="group">
      <legend>Price of each {rule.unit === 'credit' ? 'credit that was spent' : 'valid verification'}</legend>
      <div class="fields">
        <SelectField
          label="Unit"
          value={rule.unit}
          set={(unit) => set({ ...rule, unit: unit as RuleDraft['unit'] })}
          options={[
            ['verification', 'valid verification'],
            ['credit', 'credit'],
          ]}
          wrong={wrongAt('')}
        />
        <ApiSelect
          value={rule.apiId ?? ''}
          set={(apiId) => set({ ...rule, apiId })}
          none="Any API"
          wrong={wrongAt('apiId') ?? false}
        />
        <PlanField value={rule.planId ?? ''} set={(planId) => set({ ...rule, planId })} hint="Empty: any plan." />
      </div>
      <Steps steps={rule.steps} set={(steps) => set({ ...rule, steps })} wrongAt={wrongAt} />
      <div>
        <Button class="small" onClick={remove}>
          Remove this price
        </Button>
      </div>
    </fieldset>
  );
}

/** The dialog that sets the prices. */
export const EditPrices = ({ close }: { close: () => void }) => (
  <SettingsDialog title="Prices" close={close} form={({ prices }) => <PricesForm prices={prices} close={close} />} />
);

function PricesForm({ prices: before, close }: { prices: Prices | undefined; close: () => void }) {
  const [currency, setCurrency] = useState(before?.currency ?? 'EUR');
  const [decimals, setDecimals] = useState(`${before?.decimals ?? 2}`);
  const [rules, setRules] = useState(before?.rules.map(draftOf) ?? [newRule]);
  const prices = { currency, decimals: Number(decimals), rules: rules.map(ruleOf) };
  const problems = new Map(rules.length > 0 ? priceProblems(prices) : []);
  const wrongAt = (place: string) => (problems.has(place) ? `It ${problems.get(place)}.` : undefined);
  return (
    <Act
      title="Prices"
      operation="workspace.updateSettings"
      input={{ prices: rules.length > 0 ? prices : null }}
      act="Save"
      ready={problems.size === 0}
      isEdit
      close={close}
    >
      <p class="hint">
        What customers owe, in bills. Of a unit the price with the API and the plan applies, or else that with the API,
        with the plan, or with neither. Each unit has the price of its step. An amount is rounded once, half up.
      </p>
      <div class="fields">
        <TextField
          label="Currency"
          value={currency}
          set={(text) => setCurrency(text.trim().toUpperCase())}
          maxLength={3}
          wrong={wrongAt('currency')}
          placeholder="EUR"
        />
        <SelectField
          label="Decimals of an amount"
          value={decimals}
          set={setDecimals}
          options={['0', '1', '2', '3', '4', '5', '6'].map((number) => [number, number] as const)}
        />
      </div>
      {rules.map((rule, index) => (
        <Rule
          key={index}
          rule={rule}
          set={(changed) => setRules(rules.map((one, at) => (at === index ? changed : one)))}
          remove={() => setRules(rules.filter((_, at) => at !== index))}
          wrongAt={(place) => wrongAt(`rules[${index}]${place && `.${place}`}`)}
        />
      ))}
      {rules.length === 0 && <p class="hint">Without a price the bill has no amounts.</p>}
      {rules.length < pricesMax.rules && (
        <div>
          <Button class="small" onClick={() => setRules([...rules, newRule])}>
            Add a price
          </Button>
        </div>
      )}
    </Act>
  );
}
