import Type, { type Static } from 'typebox';
import { parseHoldId } from '../../domain/holdId.ts';
import { digestOf } from '../../domain/keyString.ts';
import { idForms } from '../../domain/records.ts';
import { type ManageContext, manages } from '../../operation.ts';
import type { KeyRecord } from '../../records/records.ts';
import { Fields, may, OneOf, out, Text } from '../schemas.ts';

const itemsMax = 20;
/** Limit of the APIs that are looked through for a start, of a caller that may read the keys of some. */
const apisMax = 20;

const Item = Type.Object({
  kind: OneOf(['key', 'identity', 'api', 'plan', 'rootKey', 'hold'], 'Kind of the record.'),
  id: out.text('Its id; of a plan its planId.'),
  name: may.text('Name of the API or the root key, or of the key.'),
  start: may.text('First characters of the string of the key or the root key.'),
  externalId: may.text('Owner of the key, or the identity itself.'),
  apiId: may.text('API of the key, or of the key that the hold is of.'),
  exact: out.flag(
    'True if the text is the id, the whole name, the externalId, the string or the hash of the record. False if it is a part.',
  ),
  deleted: Type.Optional(
    Type.Boolean({ description: 'True for a deleted key, which can be restored. Absent for others.' }),
  ),
});
type Found = Static<typeof Item>;

const ofKey = ({ keyId, name, start, externalId, apiId, restorableUntil }: KeyRecord, exact: boolean): Found => ({
  kind: 'key',
  id: keyId,
  name,
  start,
  externalId,
  apiId,
  exact,
  ...(restorableUntil !== undefined && { deleted: true }),
});

export const find = manages({
  name: 'system.find',
  summary: 'Find keys, identities, APIs, plans, root keys and holds by what a person has of them.',
  description:
    'Looks up a text as the id of a record, the beginning of a key string, a whole key string, the SHA-256 of one (64 hexadecimal digits, or base64), an externalId, a planId, and a part of the name of an API, all at once and by indexes. It returns at most 20 records that the root key may read, those that are exact first. The text is not stored.',
  input: Fields({ text: Text(1, 256, 'What to find.') }),
  output: Type.Object({ items: Type.Array(Item, { description: 'What was found.' }) }),
  needs: {},
  scope: () => undefined,
  readsMuch: true,

  async handle({ text }, context) {
    const wanted = text.trim();
    const found = await Promise.all([
      exactKeys(wanted, context),
      startedKeys(wanted, context),
      others(wanted, context),
    ]);
    const items = new Map<string, Found>();
    for (const item of found.flat(2).sort((a, b) => Number(b.exact) - Number(a.exact))) {
      const place = `${item.kind} ${item.id}`;
      if (!items.has(place)) items.set(place, item);
    }
    return { items: [...items.values()].slice(0, itemsMax) };
  },
});

/** The keys with this id, string or hash, and the hold with this id. */
async function exactKeys(wanted: string, { store, caller: { workspaceId, grants } }: ManageContext): Promise<Found[]> {
  const { keys, holds } = store;
  const id24 = parseHoldId(wanted)?.id24;
  const hashes = [
    ...(/^[0-9a-f]{64}$/i.test(wanted) ? [Buffer.from(wanted, 'hex')] : []),
    ...(/^[\w+/-]{43}=?$/.test(wanted) ? [Buffer.from(wanted, 'base64')] : []),
  ];
  const [holder, ...all] = await Promise.all([
    id24 === undefined ? undefined : keys.find(workspaceId, `key_${id24}`),
    ...(idForms.key.test(wanted) ? [keys.find(workspaceId, wanted), keys.findDeleted(workspaceId, wanted)] : []),
    ...[digestOf(wanted), ...hashes].map((digest) => keys.findByDigest(workspaceId, digest)),
  ]);
  const mayRead = ({ apiId }: KeyRecord) => grants.holds('api', apiId, 'read_key');
  const items = all.flatMap((each) => (each && mayRead(each.key) ? [ofKey(each.key, true)] : []));
  if (!holder || !mayRead(holder.key)) return items;
  const { keyId, name, externalId, apiId } = holder.key;
  const open = await holds.list(workspaceId, { keyId, after: undefined, count: 100 });
  const exact = open.items.some(({ id }) => id === wanted);
  return [...items, { kind: 'hold', id: wanted, name, externalId, apiId, exact }, ofKey(holder.key, false)];
}

/** The newest keys whose string begins with the text, also deleted ones. */
async function startedKeys(wanted: string, { store, caller: { workspaceId, grants } }: ManageContext) {
  const apiIds = grants.idsFor('api', 'read_key');
  const scopes = apiIds === true ? [undefined] : apiIds.slice(0, apisMax);
  const pages = await Promise.all(
    (/^\w{1,64}$/.test(wanted) ? scopes : []).flatMap((apiId) =>
      [false, true].map((deleted) => {
        const query = { apiId, order: 'desc', after: undefined, count: itemsMax } as const;
        return store.keySearch.list(workspaceId, { ...query, filter: { start: wanted, deleted } });
      }),
    ),
  );
  return pages.flatMap((page) => ('items' in page ? page.items.map((key) => ofKey(key, false)) : []));
}

/** The identity, the plan, the root key and the APIs with this id or name. */
async function others(wanted: string, { store, caller: { workspaceId, grants } }: ManageContext): Promise<Found[]> {
  const [identity, plan, rootKey, api, apis] = await Promise.all([
    store.identities.find(workspaceId, wanted),
    grants.holds('plan', '*', 'read_plan') ? store.plans.find(workspaceId, wanted) : undefined,
    idForms.root_key.test(wanted) && grants.holds('root_key', '*', 'read_root_key')
      ? store.rootKeys.findById(workspaceId, wanted)
      : undefined,
    idForms.api.test(wanted) ? store.apis.find(workspaceId, wanted) : undefined,
    wanted === '' ? undefined : store.apis.list(workspaceId, { search: wanted, count: itemsMax }),
  ]);
  const items: Found[] = [];
  if (identity && grants.holds('identity', identity.id, 'read_identity'))
    items.push({ kind: 'identity', id: identity.id, externalId: identity.externalId, exact: true });
  if (plan) items.push({ kind: 'plan', id: plan.planId, exact: true });
  if (rootKey)
    items.push({ kind: 'rootKey', id: rootKey.rootKeyId, name: rootKey.name, start: rootKey.start, exact: true });
  for (const { id, name } of [...(api ? [api] : []), ...(apis?.items ?? [])])
    if (grants.holds('api', id, 'read_api')) items.push({ kind: 'api', id, name, exact: [id, name].includes(wanted) });
  return items;
}
