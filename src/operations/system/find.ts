import Type, { type Static } from 'typebox';
import type { Action, Grants, Resource } from '../../domain/grants.ts';
import { parseHoldId } from '../../domain/holdId.ts';
import { digestOf } from '../../domain/keyString.ts';
import { idForms } from '../../domain/records.ts';
import { manages } from '../../operation.ts';
import type { ApiRecord } from '../../records/apis.ts';
import { apisMax } from '../../records/keySearch.ts';
import { contains } from '../../records/pages.ts';
import type { KeyRecord } from '../../records/records.ts';
import type { Store } from '../../store.ts';
import { invalid } from '../rules.ts';
import { Fields, may, OneOf, out, Text } from '../schemas.ts';

const itemsMax = 20;
/** Limit of the APIs in which a start is looked up for a caller that may read the keys of some. */
const startedMax = 20;

/** Limit of the APIs that are read by a part of their name: those that match, or those that the caller may read. */
const namedMax = 1000;
/** So many of them are read at a time. */
const readAtOnce = 100;

/** What a caller needs to read each kind; of a hold that of its key. */
const needed = {
  key: ['api', 'read_key'],
  identity: ['identity', 'read_identity'],
  api: ['api', 'read_api'],
  plan: ['plan', 'read_plan'],
  rootKey: ['root_key', 'read_root_key'],
  hold: ['api', 'read_key'],
} as const satisfies Record<string, readonly [Resource, Action]>;
type Kind = keyof typeof needed;

const Item = Type.Object({
  kind: OneOf(Object.keys(needed) as Kind[], 'Kind of the record.'),
  id: out.text('Its id; of a plan its planId.'),
  name: may.text('Name of the key, the API or the root key.'),
  start: may.text('First characters of the string of the key or the root key.'),
  externalId: may.text('Owner of the key, or the identity itself.'),
  apiId: may.text('API of the key, or of the key of the hold.'),
  exact: out.flag('True if the text is the id, the name, the string or the hash, false if it is a part.'),
  deleted: Type.Optional(Type.Boolean({ description: 'True for a deleted key that can be restored, else absent.' })),
});
type Found = Static<typeof Item>;

export const find = manages({
  name: 'system.find',
  summary: 'Find keys, identities, APIs, plans, root keys and holds by what a person has of them.',
  description:
    'Looks up a text at once as an id, the beginning of a key string, a whole key string, its SHA-256 (64 hexadecimal digits, or base64), an externalId, a planId, and a part of the name of an API. Returns at most 20 records that the root key may read, exact ones first. The text is not stored.',
  input: Fields({ text: Text(1, 512, 'What to find.') }),
  output: Type.Object({ items: Type.Array(Item, { description: 'What was found.' }) }),
  needs: {},
  scope: () => undefined,
  readsMuch: true,

  async handle({ text }, { store, caller: { workspaceId, grants } }) {
    const wanted = text.trim();
    const [found, starting] = wanted
      ? await Promise.all([
          lookUp(wanted, store, workspaceId, grants),
          startingWith(wanted, store, workspaceId, grants),
        ])
      : [[], []];
    const items = new Map<string, Found>();
    for (const item of [...found, ...(starting ?? [])].sort((a, b) => Number(b.exact) - Number(a.exact))) {
      const { kind, id, apiId = id } = item;
      const [resource, action] = needed[kind];
      if (grants.holds(resource, apiId, action) && !items.has(kind + id)) items.set(kind + id, item);
    }
    if (items.size === 0 && !starting) throw tooManyToStart;
    return { items: [...items.values()].slice(0, itemsMax) };
  },
});

/** Everything that a text may name, except keys by the beginning of their string. */
async function lookUp(wanted: string, store: Store, ws: string, grants: Grants): Promise<Found[]> {
  const { keys, identities, plans, rootKeys, apis } = store;
  const is = (kind: keyof typeof idForms) => idForms[kind].test(wanted);
  const id24 = parseHoldId(wanted)?.id24;
  const digests = [
    digestOf(wanted),
    ...(/^[0-9a-f]{64}$/i.test(wanted) ? [Buffer.from(wanted, 'hex')] : []),
    ...(/^[\w+/-]{43}=?$/.test(wanted) ? [Buffer.from(wanted, 'base64')] : []),
  ];
  const [exact, holder, identity, plan, rootKey, someApis] = await Promise.all([
    Promise.all([
      ...(is('key') ? [keys.find(ws, wanted), keys.findDeleted(ws, wanted)] : []),
      ...digests.flatMap((digest) => [keys.findByDigest(ws, digest), keys.findDeleted(ws, digest)]),
    ]),
    id24 === undefined ? undefined : keys.find(ws, `key_${id24}`),
    identities.find(ws, wanted),
    plans.find(ws, wanted),
    is('root_key') ? rootKeys.findById(ws, wanted) : undefined,
    is('api')
      ? apis.find(ws, wanted).then((api) => (api ? [api] : []))
      : apisNamed(wanted, store, ws, grants.idsFor('api', 'read_api')),
  ]);
  const found: Found[] = exact.flatMap((each) => (each ? [keyItem(each.key, true)] : []));
  if (holder) found.push({ ...keyItem(holder.key, true), kind: 'hold', id: wanted }, keyItem(holder.key, false));
  if (identity) found.push({ kind: 'identity', id: identity.id, externalId: identity.externalId, exact: true });
  if (plan) found.push({ kind: 'plan', id: plan.planId, exact: true });
  if (rootKey)
    found.push({ kind: 'rootKey', id: rootKey.rootKeyId, name: rootKey.name, start: rootKey.start, exact: true });
  for (const { id, name } of someApis) found.push({ kind: 'api', id, name, exact: [id, name].includes(wanted) });
  return found;
}

/** APIs by a part of their name or id. Far from Redis one after the other would take a minute. */
async function apisNamed(search: string, { apis }: Store, ws: string, apiIds: true | string[]) {
  if (apiIds === true) return (await apis.list(ws, { search, count: namedMax })).items;
  const found: ApiRecord[] = [];
  for (let at = 0; at < Math.min(apiIds.length, namedMax); at += readAtOnce) {
    const read = await Promise.all(apiIds.slice(at, at + readAtOnce).map((apiId) => apis.find(ws, apiId)));
    found.push(...read.filter((api) => api !== undefined).filter((api) => contains(api, search)));
  }
  return found;
}

/** Keys by the beginning of their string, one API after the other; undefined if there are too many APIs. */
async function startingWith(start: string, { keySearch }: Store, ws: string, grants: Grants) {
  const found: Found[] = [];
  if (!/^\w{1,64}$/.test(start)) return found;
  const apiIds = grants.idsFor('api', 'read_key');
  const scopes = apiIds === true ? [undefined] : apiIds.slice(0, startedMax);
  for (const apiId of scopes) {
    for (const deleted of [false, true]) {
      if (found.length >= itemsMax) return found;
      const query = { apiId, order: 'desc', count: itemsMax, filter: { start, deleted } } as const;
      const page = await keySearch.list(ws, query);
      if ('refused' in page) return undefined;
      found.push(...page.items.map((key) => keyItem(key, false)));
    }
  }
  return found;
}

const tooManyToStart = invalid(
  'body.text',
  `finds nothing as a whole, and keys are not looked up by their beginning among more than ${apisMax} APIs`,
  'Use keys.listKeys with apiId and start.',
);

const keyItem = ({ keyId, name, start, externalId, apiId, restorableUntil }: KeyRecord, exact: boolean): Found => ({
  kind: 'key',
  id: keyId,
  name,
  start,
  externalId,
  apiId,
  exact,
  ...(restorableUntil !== undefined && { deleted: true }),
});
