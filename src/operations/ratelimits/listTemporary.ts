import Type from 'typebox';
import { timeMax } from '../../domain/time.ts';
import { existing } from '../../errors.ts';
import { type ManageContext, manages } from '../../operation.ts';
import { type TemporaryKind, temporaryKinds } from '../../records/temporary.ts';
import { requireApi } from '../keys/listKeys.ts';
import { listOf } from '../lists.ts';
import { checkMilliseconds, invalid, lacks } from '../rules.ts';
import { ApiId, Fields, may, NamespaceRef, OneOf, out, pageFields, ratelimitFields, UnixTime } from '../schemas.ts';

/** At most one of these is in a request. */
const selectors = ['kinds', 'apiId', 'namespace'] as const;

interface Input {
  kinds?: TemporaryKind[];
  apiId?: string;
  namespace?: string;
}

function kindsOf({ kinds, apiId, namespace }: Input): readonly TemporaryKind[] {
  if (apiId !== undefined) return ['key'];
  if (namespace !== undefined) return ['override'];
  return kinds ?? temporaryKinds;
}

/** The actions that reading each kind needs, as the operations that list its records do. */
const needed = {
  key: { resource: 'api', actions: ['read_key', 'read_api'] },
  identity: { resource: 'identity', actions: ['read_identity'] },
  override: { resource: 'ratelimit', actions: ['read_override'] },
} as const satisfies Record<TemporaryKind, object>;

/** Throws if the caller may not read these kinds: those of one id, or of all records. Without `ids`, of any id. */
function requireGrants(
  kinds: readonly TemporaryKind[],
  { caller: { grants } }: Pick<ManageContext, 'caller'>,
  ids?: { [Kind in TemporaryKind]?: string | undefined },
) {
  for (const kind of kinds) {
    const { resource, actions } = needed[kind];
    const id = ids?.[kind];
    for (const action of actions) {
      if (ids ? grants.holds(resource, id ?? '*', action) : grants.holdsAny(resource, action)) continue;
      throw lacks(id ? `${resource}.*.${action} or ${resource}.${id}.${action}` : `${resource}.*.${action}`);
    }
  }
}

/** Fields that an override lacks are optional. */
const { limit, duration, until: _until, former, ...ofLimits } = ratelimitFields;
const { limit: formerLimit, duration: formerDuration, ...ofFormerLimits } = former.properties;
const kind = (description: string) => OneOf(temporaryKinds, description);

export const listTemporary = manages({
  name: 'ratelimits.listTemporary',
  alias: 'ratelimit.listTemporary',
  summary: 'List temporary limits of keys and identities, and temporary overrides, the first to end first.',
  description:
    'Needs the grants for each kind that is listed: `read_key` and `read_api`, `read_identity`, `read_override`. `kinds`, `apiId` and `namespace` exclude each other.',
  input: Fields({
    kinds: Type.Optional(
      Type.Array(kind('Kind of the owner of a limit; `override` for overrides.'), {
        minItems: 1,
        maxItems: temporaryKinds.length,
        default: [...temporaryKinds],
        description: 'What is listed.',
      }),
    ),
    apiId: Type.Optional({ ...ApiId, description: 'Only limits of keys of this API.' }),
    namespace: Type.Optional({ ...NamespaceRef, description: 'Only overrides of this namespace: its name or id.' }),
    before: Type.Optional(UnixTime('Only what ends before this time in Unix milliseconds.')),
    ...pageFields,
  }),
  output: out.list({
    kind: kind('Kind of the owner of the limit; `override` for an override.'),
    id: may.text('Id of the limit.'),
    overrideId: may.text('Id of the override (`rlor_…`).'),
    keyId: may.text('Id of the key.'),
    apiId: may.text('Id of the API of the key.'),
    keyName: may.text('Name of the key.'),
    externalId: may.text('externalId of the identity.'),
    namespace: may.text('Name of the namespace.'),
    namespaceId: may.text('Id of the namespace (`rlns_…`).'),
    identifier: may.text('Identifier of the override, or a wildcard with `*`.'),
    limit,
    duration,
    ...Type.Partial(Type.Object(ofLimits)).properties,
    until: out.int('Its end in Unix milliseconds.'),
    former: may.object('What is in force again from `until` on. Absent: nothing is.', {
      limit: formerLimit,
      duration: formerDuration,
      ...Type.Partial(Type.Object(ofFormerLimits)).properties,
    }),
  }),
  errors: ['api_not_found', 'namespace_not_found'],
  // The grants depend on the kinds, see `needed`.
  needs: {},
  scope: () => undefined,
  list: (query) => listOf('temporary', query, 12),
  listedIds: 'temporary',
  check(input) {
    checkMilliseconds({ before: input.before });
    const [one, other] = selectors.filter((name) => input[name] !== undefined);
    if (other) throw invalid(`body.${other}`, `cannot be sent together with ${one}`, 'Leave one of them out.');
  },

  async load(input, context) {
    const { store, caller } = context;
    const kinds = kindsOf(input);
    const { apiId, namespace } = input;
    requireGrants(kinds, context);
    await requireApi(store, caller.workspaceId, apiId);
    const found = namespace && existing(await findNamespace(context, namespace), 'namespace', namespace);
    const ids = { key: apiId, override: found ? found.id : undefined };
    requireGrants(kinds, context, ids);
    return { kinds, apiId, namespaceId: ids.override };
  },

  async handle({ before = timeMax, limit = 100 }, { store, caller, after }, of) {
    return store.temporary.list(caller.workspaceId, { ...of, beforeMs: before, after, count: limit });
  },
});

const findNamespace = ({ store, caller }: ManageContext, namespace: string) =>
  store.overrides.findNamespace(caller.workspaceId, namespace);
