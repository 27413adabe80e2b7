// Explains a verification (lua/keys/explain.lua): the decision that lua/decide.lua would make, and the figures of its
// rules.

import type { ItemError } from '../decide/reply.ts';
import { printedSlugsOf, slugsOf } from '../decide/slugs.ts';
import { noVersion, readSnapshot } from '../decide/snapshots.ts';
import { readVerified, requestText, type Verified, type VerifyRequest, withAddress } from '../decide/verification.ts';
import { unpackRanges } from '../domain/ipRange.ts';
import type { JsonText } from '../domain/json.ts';
import { timeOfId } from '../domain/keyString.ts';
import { adHocLimit, presentedDuration, type Ratelimit } from '../domain/limit.ts';
import type { Snapshot } from '../domain/verification.ts';
import type { HeldUnits, Reply } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import { limitOwners, placesOfOwner, verifyItem } from '../scripts/layout.ts';
import { allHeld, heldByName } from './heldUnits.ts';
import { digestOf } from './keys.ts';
import { asText, fromNamed, type Refill, readRefill } from './records.ts';

/** The figures of the script, a named reply. Numbers are texts. */
interface Explained {
  status: 'found' | 'unknown' | 'deleted' | 'api_deleted';
  now: string;
  keyId?: string;
  apiId?: string;
  /** Missing if it is the time in the id. */
  created?: string;
  enabled?: 1;
  expires?: string;
  /** Packed ranges; missing for a key that any address may use. */
  allowedIps?: string;
  /** After a refill that is due; missing for an unlimited key. */
  balance?: string;
  refillAmount?: string;
  refillDay?: number;
  refillDue?: string;
  /** The id of the key whose balance that is; missing if it is its own. */
  drawsOn?: string;
  /** The balance of its identity and its refill as above, a named reply; missing if it has none. */
  shared?: Reply;
  /** For its holder: the beginning of its string, and whether another key may be charged to the same balance. */
  start?: string;
  sharesBalance?: 1;
  /** The plans of the key and of its identity; missing for none. */
  planId?: string;
  identityPlanId?: string;
  /** A `1` or `0` for each slug of the query. */
  held?: string;
  /** Decisions by the key, and by other keys of its identity, that servers have charged in advance. */
  leased?: number;
  leasedByOthers?: number;
  /** Open holds: their number, and the first step of what they hold. */
  holds?: [open: number, ...HeldUnits];
  /** Place, exceeded, remaining, reset (see VERIFIED_LIMIT), limit, duration, cost, and the units that count. */
  limits?: (string | number)[][];
}

interface LimitFigures extends Omit<Ratelimit, 'ofPlan'> {
  of: (typeof limitOwners)[number];
  /** The plan of its owner that it is from; undefined for one of the owner itself. */
  planId: string | undefined;
  cost: number;
  /** Units that count now. */
  used: number;
  /** As the verification would respond if it reached the limits; otherwise as of now. */
  exceeded: boolean;
  remaining: number;
  reset: number;
}

type DueRefill = Refill & { next: number };

interface MissingKey {
  status: 'unknown' | 'deleted' | 'api_deleted';
  nowMs: number;
  keyId: string | undefined;
  apiId: string | undefined;
}

export interface Explanation {
  status: 'found';
  nowMs: number;
  keyId: string;
  apiId: string;
  externalId: string | undefined;
  createdAt: number;
  /** Its permissions, and those of its roles and plans. Read when called, as there may be very many. */
  slugs: () => Promise<string[]>;
  /** The decision. */
  decision: Verified | ItemError;
  enabled: boolean;
  expires: number | undefined;
  allowedIps: string[] | undefined;
  balance: number | undefined;
  refill: DueRefill | undefined;
  drawsOn: string | undefined;
  /** The balance of its identity; undefined if it has none. */
  shared: { balance: number; refill: DueRefill | undefined } | undefined;
  /** For each slug of the query, whether the key has it. */
  held: boolean[];
  ratelimits: LimitFigures[];
  /** Reads what its holder sees. */
  displayed: () => Promise<Omit<Snapshot, 'permissions'> & Displayed>;
  leased: { key: number; identity: number };
  /** Reads the units and credits that open holds of the key hold, of which there may be very many, too. */
  holds: () => Promise<{ open: number; credits: number; ratelimits: { name: string; cost: number }[] } | undefined>;
}

interface Displayed {
  start: string;
  sharesBalance: boolean;
  permissions: readonly string[] | JsonText;
}

type ExplainRequest = Omit<VerifyRequest, 'digest' | 'tags'>;

const noDigest = '\0'.repeat(32);

export function openExplain({ redis, run }: StoreContext) {
  /** With the view `holder` the figures are of all limits, and nothing is taken of them. */
  return async (
    workspaceId: string,
    key: { keyId: string } | { digest: string },
    request: ExplainRequest,
    view: 'holder' | '' = '',
  ): Promise<Explanation | MissingKey> => {
    const { digest = noDigest, keyId: id = '' } = { ...key } as { digest?: string; keyId?: string };
    const { cost } = request;
    const values = { digest, cost, cached: noVersion, request: withAddress(request, requestText(request)) };
    const item = Buffer.alloc(verifyItem.size(values));
    verifyItem.write(item, 0, values);
    const reply = await run('keys/explain', workspaceId, { keyId: id, item, view });
    const figures = fromNamed<Explained>(asText(reply[0]));
    const { status, keyId, apiId } = figures;
    const nowMs = Number(figures.now);
    if (status !== 'found') return { status, nowMs, keyId, apiId };
    const packed = reply[1]!;
    const decision = readVerified({ packed, at: 0, end: packed.length, snapshot: undefined, atMs: nowMs });
    const { snapshot, permissionLists } = readSnapshot(reply[2]!, nowMs);
    const cut = permissionLists.length > 0;
    return {
      ...read(figures, decision, snapshot, request),
      displayed: async () => ({
        ...snapshot,
        start: figures.start ?? '',
        sharesBalance: figures.sharesBalance === 1,
        ...(cut && { permissions: await printedSlugsOf(redis, workspaceId, permissionLists) }),
      }),
      holds: async () => figures.holds && held(figures.holds),
      slugs: async () => (cut ? slugsOf(redis, workspaceId, permissionLists) : snapshot.permissions),
    };

    async function held([open, ...first]: NonNullable<Explained['holds']>) {
      const found = id === '' ? digest : await digestOf(redis, workspaceId, id.slice('key_'.length));
      const all = await allHeld(run, workspaceId, Buffer.from(found ?? '', 'latin1'), first);
      return { open, credits: all.credits, ratelimits: heldByName(all) };
    }
  };
}

function read(
  figures: Explained,
  decision: Verified | ItemError,
  snapshot: Snapshot,
  request: ExplainRequest,
): Omit<Explanation, 'holds' | 'displayed' | 'slugs'> {
  const { expires, allowedIps, balance, held = '' } = figures;
  // What an item error refuses has no figures of its limits.
  const checked = 'reason' in decision ? [] : (figures.limits ?? []);
  const limits = checked.map((values) => limitOf(values.map(Number), snapshot, request, figures));
  return {
    status: 'found',
    nowMs: Number(figures.now),
    keyId: figures.keyId!,
    apiId: figures.apiId!,
    externalId: snapshot.identity?.externalId,
    createdAt: Number(figures.created ?? timeOfId(figures.keyId!.slice('key_'.length))),
    decision,
    enabled: figures.enabled === 1,
    expires: expires === undefined ? undefined : Number(expires),
    allowedIps: allowedIps === undefined ? undefined : unpackRanges(allowedIps),
    balance: balance === undefined ? undefined : Number(balance),
    refill: refillOf(figures),
    drawsOn: figures.drawsOn,
    shared: figures.shared === undefined ? undefined : sharedOf(fromNamed(figures.shared)),
    held: [...held].map((digit) => digit === '1'),
    ratelimits: withDecided(limits, decision),
    leased: { key: figures.leased!, identity: figures.leasedByOthers! },
  };
}

type Refilled = Pick<Explained, 'refillAmount' | 'refillDay' | 'refillDue'>;

function refillOf(figures: Refilled): DueRefill | undefined {
  const refill = readRefill(figures);
  return refill && { ...refill, next: Number(figures.refillDue) };
}

const sharedOf = (figures: Refilled & { balance: string }) => ({
  balance: Number(figures.balance),
  refill: refillOf(figures),
});

function limitOf(
  values: number[],
  snapshot: Snapshot,
  request: ExplainRequest,
  { planId, identityPlanId }: Explained,
): LimitFigures {
  const [place, exceeded, remaining, reset, limit, duration, cost, used] = values as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const of = limitOwners[Math.floor((place - 1) / placesOfOwner)]!;
  const index = (place - 1) % placesOfOwner;
  const { ofPlan, ...configured }: Ratelimit = {
    key: () => snapshot.ratelimits[index]!,
    identity: () => snapshot.identity!.ratelimits[index]!,
    request: () => adHocLimit(request.ratelimits![index]!.name, limit, duration, reset - 1),
  }[of]();
  return {
    ...configured,
    limit,
    ...presentedDuration(duration, reset - 1),
    of,
    planId: ofPlan && (of === 'key' ? planId : identityPlanId),
    cost,
    used,
    exceeded: exceeded === 1,
    remaining,
    reset,
  };
}

/** The limits as the decision reports them, if it reached them. It has them in the same order. */
function withDecided(limits: LimitFigures[], decision: Verified | ItemError): LimitFigures[] {
  if ('reason' in decision || decision.ratelimits.length === 0) return limits;
  return limits.map((limit, index) => {
    const { exceeded, remaining, resetAtMs } = decision.ratelimits[index]!;
    return { ...limit, exceeded, remaining, reset: resetAtMs };
  });
}
