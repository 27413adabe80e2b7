// Shared by keys.updateCredits and identities.updateCredits: their input and their errors.

import Type, { type TSchema } from 'typebox';
import { notFound } from '../errors.ts';
import type { Balance } from '../records/keys.ts';
import { invalid } from './rules.ts';
import { Fields, Int, Nullable, OneOf } from './schemas.ts';

const operations = ['set', 'increment', 'decrement'] as const;

/**
 * The input of a change of a balance. `name` is the field that refers to its owner. `without` describes an owner
 * without a balance.
 */
export const creditChange = <const Name extends string, Reference extends TSchema>(
  name: Name,
  reference: Reference,
  { without, removed }: { without: string; removed: string },
) =>
  Fields(
    {
      ...({ [name]: reference } as Record<Name, Reference>),
      operation: OneOf(
        operations,
        `Change of the balance. ${without} has none to increment or decrement. A decrement stops at 0.`,
      ),
      value: Type.Optional(
        Nullable(Int(0, `Number of credits. null with \`set\`: ${removed}. The balance is at most 2^53 - 1.`)),
      ),
    },
    { documented: { required: [name, 'operation', 'value'] } },
  );

/** Checks rules that the schema cannot express. `fix` describes the effect of null. */
export function checkCreditChange(
  { operation, value }: { operation: string; value?: number | null | undefined },
  fix: string,
) {
  if (value === undefined) throw invalid('body.value', 'is required', fix);
  if (value === null && operation !== 'set') throw invalid('body.value', `must be a number to ${operation}`);
}

/** The balance after a change, or the error of one that the store refused. `without` as above. */
export function changedCredits<Owner extends 'key' | 'identity'>(
  owner: Owner,
  result: Balance | { refused: `${Owner}_not_found` | 'unlimited' | 'too_large' },
  operation: string,
  without: string,
) {
  if (!('refused' in result)) return { ...result, remaining: result.remaining ?? null };
  if (result.refused === `${owner}_not_found`) throw notFound(owner);
  throw result.refused === 'unlimited'
    ? invalid('body.operation', `cannot ${operation} ${without}`, 'Set its credits to a number first.')
    : invalid('body.value', `increases the balance above ${Number.MAX_SAFE_INTEGER}`);
}
