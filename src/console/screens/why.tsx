import { useEffect, useRef, useState } from 'preact/hooks';
import { Link, useLocation, useSearch } from 'wouter-preact';
import { call, type Failure } from '../api.ts';
import { count, duration, moment } from '../format.ts';
import {
  AsCurl,
  Badge,
  Button,
  Card,
  Head,
  LacksScreen,
  LimitGauge,
  Outcome,
  Problem,
  TextField,
  UtcTime,
} from '../parts/basic.tsx';
import { namesOf } from '../parts/keyForm.tsx';
import { Units } from '../parts/lasting.tsx';
import { LastRefusal, RecentRefusals, withPeriod } from '../parts/refusals.tsx';
import { Table } from '../parts/table.tsx';
import type { Explained, ExplainedLimit, ExplainedRule } from '../records.ts';
import { may } from '../session.ts';

/** `tokens=500` in a request. */
function limitOf(text: string) {
  const [, name = text, cost] = /^(.*)=(\d+)$/.exec(text) ?? [];
  return { name, ...(cost !== undefined && { cost: Number(cost) }) };
}

const isKeyId = (text: string) => /^key_[0-9A-Za-z]+$/.test(text);

interface Asked {
  permissions: string;
  limits: string;
  cost: string;
  ip: string;
}

function inputOf({ permissions, limits, cost, ip }: Asked) {
  const ratelimits = namesOf(limits).map(limitOf);
  return {
    ...(permissions.trim() && { permissions: permissions.trim() }),
    ...(/^\d+$/.test(cost) && { credits: { cost: Number(cost) } }),
    ...(ratelimits.length > 0 && { ratelimits }),
    ...(ip.trim() && { ip: ip.trim() }),
  };
}

const askedNames: readonly (keyof Asked)[] = ['permissions', 'limits', 'cost', 'ip'];

/** The request in the address, without the period of the refusals, which may be there too. */
function askedIn(search: string): URLSearchParams {
  const query = new URLSearchParams(search);
  return new URLSearchParams(askedNames.filter((name) => query.get(name)).map((name) => [name, query.get(name)!]));
}

/** The address of a request; undefined if a field may contain a key string, because others see addresses. */
function addressOf(keyId: string, asked: Asked): string | undefined {
  const given = Object.entries(asked).filter(([, text]) => text.trim());
  if (given.some(([, text]) => /[0-9A-Za-z]{20}/.test(text))) return undefined;
  return withPeriod(`/why/${keyId}`, new URLSearchParams(given.map(([name, text]) => [name, text.trim()])));
}

/** Asks what a verification of a key would do, and charges nothing. */
export function Why({ keyId = '' }: { keyId?: string }) {
  const inAddress = askedIn(useSearch());
  const [path, go] = useLocation();
  /** The address of the displayed answer, if the user entered the request here. */
  const answered = useRef<string | undefined>();
  const [about, setAbout] = useState(keyId);
  const [permissions, setPermissions] = useState('');
  const [cost, setCost] = useState('');
  const [limits, setLimits] = useState('');
  const [ip, setIp] = useState('');
  const [explained, setExplained] = useState<{ answer: Explained; input: object }>();
  const [failure, setFailure] = useState<Failure>();
  const text = about.trim();
  const ask = async (asked: Asked) => {
    const input = { ...(isKeyId(text) ? { keyId: text } : { key: text }), ...inputOf(asked) };
    try {
      const answer = await call<Explained>('keys.explainKey', input);
      setExplained({ answer, input });
      setFailure(undefined);
      return answer.keyId;
    } catch (cause) {
      setFailure(cause as Failure);
      setExplained(undefined);
      return undefined;
    }
  };
  // The address contains the id of the key, and after a refusal or a question here the request.
  useEffect(() => {
    const isAnswered = answered.current === path + location.search;
    answered.current = undefined;
    if (!keyId || isAnswered) return;
    const of = (name: keyof Asked) => inAddress.get(name) ?? '';
    const asked = { permissions: of('permissions'), limits: of('limits'), cost: of('cost'), ip: of('ip') };
    setPermissions(asked.permissions);
    setCost(asked.cost);
    setLimits(asked.limits);
    setIp(asked.ip);
    ask(asked);
  }, [`${inAddress}`]);
  const submit = async (event: Event) => {
    event.preventDefault();
    const asked = { permissions, limits, cost, ip };
    const from = location.href;
    const found = await ask(asked);
    // A key string can look like an id. If a key with this id exists, the text is the id.
    const address = found === text ? addressOf(text, asked) : undefined;
    if (address === undefined || address === path + location.search || location.href !== from) return;
    answered.current = address;
    go(address);
  };
  if (!may('api', 'read_key')) return <LacksScreen title="Explain" grant="api.*.read_key" />;
  return (
    <>
      <Head title="Explain" />
      <Card>
        <p class="quiet">What would happen to a verification now, rule by rule. It charges nothing.</p>
        <form class="form" onSubmit={submit}>
          <div class="fields">
            <TextField
              label="Key or key id"
              type={isKeyId(text) || text === '' ? 'text' : 'password'}
              value={about}
              set={setAbout}
              placeholder="key_… or the key string"
              hint="A key string is sent in the body of one request, and stored nowhere."
            />
            <TextField
              label="Permissions, as a query"
              value={permissions}
              set={setPermissions}
              placeholder="documents.read AND team.a"
            />
            <TextField label="Cost in credits" inputMode="numeric" value={cost} set={setCost} placeholder="1" />
            <TextField
              label="Limits that it names"
              value={limits}
              set={setLimits}
              placeholder="tokens=500"
              hint="Each with its units, without = one."
            />
            <TextField label="IP address" value={ip} set={setIp} placeholder="203.0.113.7" />
          </div>
          <div class="actions">
            <Button type="submit" tone="primary" disabled={namesOf(text).length !== 1}>
              Explain
            </Button>
          </div>
        </form>
        <Problem failure={failure} />
      </Card>
      {explained && <Answer {...explained} />}
    </>
  );
}

const tones = { passed: 'good', failed: 'bad', not_reached: '' } as const;
const results = { passed: 'passed', failed: 'refuses', not_reached: 'not reached' } as const;

const ruleNames: Record<ExplainedRule['rule'], string> = {
  key: 'The key exists',
  enabled: 'It is enabled',
  expires: 'It has not expired',
  allowed_ips: 'The address may use it',
  permissions: 'It has the permissions',
  ratelimit_names: 'The named limits exist',
  ratelimits: 'Its limits have room',
  credits: 'Its credits suffice',
};

const reasons: Record<string, string> = {
  unknown: 'There is no such key in this workspace.',
  deleted: 'It was deleted.',
  api_deleted: 'Its API was deleted.',
  other_keyspace: 'Its API is not one of those that the request names.',
  too_many_counters: 'It has its maximum of counters for limits of requests.',
  too_many_holds: 'It has its maximum of open holds, and a slot needs one more.',
  hold_too_large: 'The hold that a slot needs would be too large.',
};

function exceededOf({ name, used, limit, cost, duration: ms, type, period }: ExplainedLimit) {
  const lasts = period ? `of this ${period}` : `in any ${duration(ms)}`;
  const are = type === 'concurrency' ? 'slots are taken' : `${lasts} are used`;
  return `${name}: ${count(used)} of ${count(limit)} ${are}, the cost is ${count(cost)}.`;
}

/** A balance and its refill in sentences; nothing without one. */
function balanceOf(name: string, figures: NonNullable<ExplainedRule['identity']>, cost: number) {
  const { balance, debt, remaining, refill } = figures;
  if (balance === undefined) return undefined;
  const before = `${name} ${count(balance)}${debt === undefined ? '' : `, debt ${count(debt)}`}`;
  const next = refill ? ` Refilled to ${count(refill.amount)} at ${moment(refill.next)}.` : '';
  // Absent if the request itself is refused, for example for a hold that would be too large.
  const then = remaining === undefined ? '' : `, then ${count(remaining)}`;
  return `${before}, cost ${count(cost)}${then}.${next}`;
}

/** The figures of a rule in a sentence. */
function figuresOf(rule: ExplainedRule) {
  const { reason, expires, allowedIps, ip, slugs, missing, ratelimits, cost = 0, identity, of } = rule;
  const texts = [
    reason && (reasons[reason] ?? reason),
    expires !== undefined && `Expires ${moment(expires)}.`,
    allowedIps && `The address is ${ip ?? 'not given'}. These may use it: ${allowedIps.join(', ')}.`,
    slugs && `${slugs.map(({ slug, held }) => `${slug}: ${held ? 'held' : 'lacks it'}`).join(', ')}.`,
    missing && missing.length > 0 && `Missing: ${missing.join(', ')}.`,
    ratelimits
      ?.filter(({ exceeded }) => exceeded)
      .map(exceededOf)
      .join(' '),
    balanceOf('Balance', rule, cost),
    identity && balanceOf('Balance of the customer', identity, cost),
    of && `The balance of the ${of === 'key' ? 'key' : 'customer'} is too small.`,
  ];
  return texts.filter(Boolean).join(' ');
}

/** If all rules pass, those without figures are folded. */
function Rules({ rules }: { rules: readonly ExplainedRule[] }) {
  const rows = rules.map((rule) => ({ ...rule, figures: figuresOf(rule) }));
  const isFolded = rules.every(({ result }) => result === 'passed');
  const plain = isFolded ? rows.filter(({ figures }) => !figures) : [];
  const listed = rows.filter((row) => !plain.includes(row));
  return (
    <>
      {listed.length > 0 && (
        <Table
          label="Rules in order"
          rows={listed}
          idOf={({ rule }) => rule}
          columns={[
            { name: 'Rule', cell: ({ rule }) => ruleNames[rule] },
            { name: 'Result', cell: ({ result }) => <Badge tone={tones[result]}>{results[result]}</Badge> },
            { name: 'Figures', cell: ({ figures }) => figures, isText: true },
          ]}
        />
      )}
      {plain.length > 0 && (
        <details>
          <summary>
            {plain.length === rows.length ? `All ${rows.length} rules pass` : `${plain.length} more rules pass`}
          </summary>
          <ul class="names">
            {plain.map(({ rule }) => (
              <li key={rule}>
                <Badge tone="good">{ruleNames[rule]}</Badge>
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

const limitNameOf = ({ name, of, planId }: ExplainedLimit) =>
  `${name} (of the ${of === 'identity' ? 'customer' : of}${planId === undefined ? '' : `, from the plan ${planId}`})`;

function Answer({ answer, input }: { answer: Explained; input: object }) {
  const { code, rules, keyId, time, charge, leased } = answer;
  const ratelimits = rules.find(({ rule }) => rule === 'ratelimits')?.ratelimits ?? [];
  const asked = askedIn(useSearch());
  const mayRefusals = may('api', 'read_analytics');
  return (
    <>
      <Card
        title={
          <>
            The answer is <Outcome outcome={code} />
          </>
        }
        actions={keyId && <Link href={`/keys/${keyId}`}>To the key</Link>}
      >
        <Rules rules={rules} />
        <p class="quiet">
          As of {moment(time)}. It would charge {count(charge.credits)} {charge.credits === 1 ? 'credit' : 'credits'}
          {charge.ratelimits.map(({ name, cost }) => `, ${count(cost)} of ${name}`)}.
        </p>
        {leased && (
          <p class="quiet">
            Servers have charged {count(leased.key)} decisions of this key and {count(leased.identity)} of other keys of
            its customer in advance. A verification that would be refused takes back what is left of them first.
          </p>
        )}
        {code === 'VALID' && keyId && mayRefusals && <LastRefusal keyId={keyId} path={`/why/${keyId}?${asked}`} />}
        {'key' in input ? null : <AsCurl operation="keys.explainKey" input={input} />}
      </Card>
      {ratelimits.length > 0 && (
        <Card title="Limits">
          <Table
            label="Limits"
            rows={ratelimits}
            idOf={({ id, name, of }) => id + name + of}
            columns={[
              { name: 'Limit', cell: limitNameOf },
              { name: 'Units', cell: (row) => <Units limit={row} /> },
              { name: 'Used', cell: (row) => <LimitGauge used={row.used} limit={row} /> },
              { name: 'Cost', cell: ({ cost }) => count(cost), isNumber: true },
              { name: 'Reset, UTC', cell: ({ reset }) => <UtcTime ms={reset} />, isWide: true },
            ]}
          />
        </Card>
      )}
      {keyId && mayRefusals && <RecentRefusals keyId={keyId} />}
    </>
  );
}
