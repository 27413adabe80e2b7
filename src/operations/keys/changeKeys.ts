import Type, { type Static } from 'typebox';
import { notFound } from '../../errors.ts';
import { manages } from '../../operation.ts';
import type { KeyChange } from '../../records/keys.ts';
import { checkMilliseconds, invalid, lacks, tooManyOwnLimits } from '../rules.ts';
import { Expires, Fields, Nullable, OptionalFlag, out, PlanId, Text } from '../schemas.ts';
import { requireKeyFields } from './keyFields.ts';
import { notDeleted } from './restoreKey.ts';

const Value = {
  enabled: OptionalFlag('The switch of the key.'),
  expires: Type.Optional(Nullable(Expires)),
  planId: Type.Optional(Nullable(PlanId)),
  deleted: OptionalFlag('Whether the key is deleted.'),
};
const Change = Fields(Value, {
  description: 'Exactly one field. `deleted`: true deletes the keys as keys.deleteKey does, false restores them.',
  documented: { minProperties: 1, maxProperties: 1 },
});

const Result = Type.Object({
  changed: out.objects('Changed keys, in the order of the request, as the other lists.', {
    keyId: out.text('Id of the key.'),
    before: out.object('The field as it was.', Value),
    after: out.object('The field as it is.', Value),
  }),
  unchanged: Type.Array(Type.String(), { description: 'Ids of the keys that had the value.' }),
  failed: out.objects('Keys that were not changed.', {
    keyId: out.text('Id of the key.'),
    code: out.text('Code of the error, as in the `type` of error responses.'),
    message: out.text('The reason.'),
  }),
});

/** What each key must allow: as keys.updateKey, keys.deleteKey and keys.restoreKey. */
const actionsFor = ({ deleted }: Static<typeof Change>) => {
  if (deleted === undefined) return ['update_key'] as const;
  return deleted ? (['delete_key'] as const) : (['create_key', 'delete_key'] as const);
};

export const changeKeys = manages({
  name: 'keys.changeKeys',
  summary: 'Change one field of up to 100 keys, with one event in the audit log.',
  description:
    'A key that has the value already is in `unchanged`. Keys that do not exist, or that the root key may not change, are in `failed` as `key_not_found`; the others are changed. Keys with very many limits are changed in several steps: if one fails, its keys and those after it are in `failed` with its error. To undo it, call it again with the values of `before`.',
  input: Fields({
    // No key string that Tollgate creates is as short: the answer repeats what is not found.
    keyIds: Type.Array(Text(5, 28, 'Id of a key.', { pattern: '^key_[a-zA-Z0-9]+$' }), {
      minItems: 1,
      maxItems: 100,
      uniqueItems: true,
      description: 'Ids of different keys.',
    }),
    change: Change,
  }),
  output: Result,
  errors: ['plan_not_found'],
  needs: {},
  changes: true,
  scope: () => undefined,
  check({ change }) {
    const { length } = Object.keys(change);
    if (length !== 1) throw invalid('body.change', `must have exactly one field; it has ${length}`);
    checkMilliseconds({ expires: change.expires }, 'body.change');
  },

  async handle({ keyIds, change }, { store, caller, actor }) {
    const { workspaceId, grants } = caller;
    let apiIds: true | string[] = true;
    for (const action of actionsFor(change)) {
      const ids = grants.idsFor('api', action);
      if (ids !== true && ids.length === 0) throw lacks(`api.*.${action}`);
      if (ids !== true) apiIds = apiIds === true ? ids : apiIds.filter((id) => ids.includes(id));
    }
    requireKeyFields({ planId: change.planId }, store);
    const keyChange = change as KeyChange;
    const { keys, error } = await store.keys.change(workspaceId, { keyIds, change: keyChange, apiIds }, actor);
    const errors = {
      key_not_found: change.deleted === false ? notDeleted() : notFound('key'),
      too_many_limits: tooManyOwnLimits(),
    };
    const result: Static<typeof Result> = { changed: [], unchanged: [], failed: [] };
    for (const { keyId, outcome, before } of keys) {
      if (outcome === 'changed') result.changed.push({ keyId, before: valueBefore(change, before), after: change });
      else if (outcome === 'unchanged') result.unchanged.push(keyId);
      else result.failed.push({ keyId, code: errors[outcome].code, message: errors[outcome].message });
    }
    if (error) {
      const { code, message } = error;
      result.failed.push(...keyIds.slice(keys.length).map((keyId) => ({ keyId, code, message })));
    }
    return result;
  },
});

/** The field that a change changes, with its value before as the script returns it. */
function valueBefore(change: Static<typeof Change>, before: string): Static<typeof Change> {
  if (change.expires !== undefined) return { expires: before === '' ? null : Number(before) };
  if (change.planId !== undefined) return { planId: before === '' ? null : before };
  return change.deleted === undefined ? { enabled: before === 'true' } : { deleted: before === 'true' };
}
