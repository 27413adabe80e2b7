import Type from 'typebox';
import { notFound } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { invalid } from '../rules.ts';
import { CreditsOrUnlimited, Fields, Int, KeyId, Nullable } from '../schemas.ts';
import { loadKey, scopeOfKey } from './keyById.ts';

export const updateCredits = manages({
  name: 'keys.updateCredits',
  summary: 'Set, increase or decrease the credits of a key. Setting null makes it unlimited.',
  input: Fields(
    {
      keyId: KeyId,
      operation: Type.Enum(['set', 'increment', 'decrement'], {
        description:
          'Change of the balance. An unlimited key has none to increment or decrement. A decrement stops at 0.',
      }),
      value: Type.Optional(
        Nullable(
          Int({
            minimum: 0,
            description: 'Number of credits. null with `set`: unlimited. The balance is at most 2^53 - 1.',
          }),
        ),
      ),
    },
    {
      documented: {
        required: ['keyId', 'operation', 'value'],
        anyOf: [{ properties: { operation: { const: 'set' } } }, { properties: { value: { type: 'integer' } } }],
      },
    },
  ),
  output: CreditsOrUnlimited,
  errors: ['key_not_found'],
  needs: { api: ['update_key'] },
  check({ operation, value }) {
    if (value === undefined) throw invalid('body.value', 'is required', 'Use null to make the key unlimited.');
    if (value === null && operation !== 'set') throw invalid('body.value', `must be a number to ${operation}`);
  },
  load: loadKey,
  scope: scopeOfKey,

  async handle({ keyId, operation, value }, { store, caller, actor }) {
    const change = { keyId, operation: operation as 'set', value: value ?? undefined };
    const result = await store.keys.updateCredits(caller.workspaceId, change, actor);
    if (!('refused' in result)) return { ...result, remaining: result.remaining ?? null };
    if (result.refused === 'key_not_found') throw notFound('key');
    throw result.refused === 'unlimited'
      ? invalid('body.operation', `cannot ${operation} an unlimited key`, 'Set its credits to a number first.')
      : invalid('body.value', `increases the balance above ${Number.MAX_SAFE_INTEGER}`);
  },
});
