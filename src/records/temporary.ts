// Typed functions for the script of lua/limits/: temporary limits of keys and identities, and temporary overrides.

import type { Reply } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import { type OverrideReply, readOverride } from './overrides.ts';
import type { PageOf } from './pages.ts';
import { fromNamed, type LimitReply, limitOfReply } from './records.ts';

export const temporaryKinds = ['key', 'identity', 'override'] as const;
export type TemporaryKind = (typeof temporaryKinds)[number];
/** The first letters of the members of the index (lua/include/nameOf.lua). */
const letters: Record<TemporaryKind, string> = { key: 'k', identity: 'i', override: 'o' };

/** The members of the index that a call reads, and the calls of a page, which ends early then. */
const stepMax = 1000;
const stepsMax = 20;

/** `until` is its end, Unix milliseconds. */
type Temporary = ReturnType<typeof readTemporary>;

/** As lua/limits/temporary.lua returns it, with the fields of a limit or an override. */
type TemporaryReply =
  | ({ kind: 'k'; keyId: string; apiId: string; keyName?: string } & LimitReply)
  | ({ kind: 'i'; externalId: string } & LimitReply)
  | ({ kind: 'o'; namespace: string; namespaceId: string } & OverrideReply);

interface TemporaryQuery {
  kinds: readonly TemporaryKind[];
  /** Only of keys of this API, with `key` alone. */
  apiId?: string | undefined;
  /** Only of this namespace, with `override` alone. */
  namespaceId?: string | undefined;
  /** Unix milliseconds, exclusive. */
  beforeMs: number;
  /** The place of the last item of the page before. */
  after: string | undefined;
  count: number;
}

export function openTemporary({ run }: StoreContext) {
  return {
    /** A page of limits and overrides that have not ended yet, the first to end first. */
    async list(workspaceId: string, query: TemporaryQuery): Promise<PageOf<Temporary>> {
      const { apiId, namespaceId, count } = query;
      const kinds = query.kinds.map((kind) => letters[kind]).join('');
      const of = apiId?.slice(-8) ?? namespaceId?.slice('rlns_'.length) ?? '';
      const items: Temporary[] = [];
      let [afterEnds, after] = query.after === undefined ? ['', ''] : membersPlace(query.after);
      for (let step = 0; step < stepsMax; step++) {
        const wanted = count - items.length;
        const given = { kinds, of, before: query.beforeMs, afterEnds, after, count: stepMax, wanted };
        const [found, lastEnds, last, more] = await run('limits/temporary', workspaceId, given);
        items.push(...found.map(readTemporary));
        if (more === 0) return { items, next: undefined };
        [afterEnds, after] = [lastEnds, last];
        if (items.length === count) break;
      }
      return { items, next: placeOf(afterEnds, after) };
    },
  };
}

/** A place in the index: the end and the member, which may have any characters in the name of a limit. */
const placeOf = (ends: string, member: string): string => `${ends}_${Buffer.from(member).toString('base64url')}`;
function membersPlace(place: string): [ends: string, member: string] {
  const at = place.indexOf('_');
  return [place.slice(0, at), Buffer.from(place.slice(at + 1), 'base64url').toString()];
}

function readTemporary(reply: Reply) {
  const named = fromNamed<TemporaryReply>(reply);
  const until = Number(named.ends);
  switch (named.kind) {
    case 'k': {
      const { keyId, apiId, keyName } = named;
      return { kind: 'key' as const, keyId, apiId, keyName, ...limitOfReply(named), until };
    }
    case 'i':
      return { kind: 'identity' as const, externalId: named.externalId, ...limitOfReply(named), until };
    case 'o': {
      const { namespace, namespaceId } = named;
      const { createdAt: _createdAt, ...override } = readOverride(named);
      return { kind: 'override' as const, namespace, namespaceId: `rlns_${namespaceId}`, ...override, until };
    }
  }
}
