import Type from 'typebox';
import { wildcardsMax, workspaceWildcardsMax } from '../../domain/wildcards.ts';
import { type ApiError, notFound } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { checkPeriod, endRefused, invalid, lacks, requireData, requireQuotas, temporarySince } from '../rules.ts';
import {
  Fields,
  Identifier,
  Int,
  lastsBound,
  NamespaceRef,
  OverrideId,
  orPeriod,
  periodFields,
  UnixTime,
  unitsMeaning,
} from '../schemas.ts';

const wildcardsBound =
  `all wildcards of a namespace have at most ${wildcardsMax.stars} \`*\` and ${wildcardsMax.bytes} bytes in total, ` +
  `of which at most ${wildcardsMax.searching} are between two \`*\``;

export const setOverride = manages({
  name: 'ratelimits.setOverride',
  alias: 'ratelimit.setOverride',
  summary: 'Set the limit of an identifier, or of all identifiers that match a wildcard, in a namespace.',
  description: `An identifier with \`*\` is a wildcard: ${wildcardsBound}. The namespaces of a workspace have at most ${workspaceWildcardsMax} wildcards.`,
  input: Fields({
    namespace: NamespaceRef,
    identifier: Identifier,
    limit: Int(0, `${unitsMeaning}. 0 blocks every request.`),
    duration: Type.Optional(Int(1000, `Duration in milliseconds. ${orPeriod}`)),
    ...periodFields,
    until: Type.Optional(
      UnixTime(
        `Time in Unix milliseconds at which the override ends, ${lastsBound}. The permanent override that it replaces is in force again from then on, if there is one. Absent: it is permanent, and replaces what was set before.`,
      ),
    ),
  }),
  output: Type.Object({ overrideId: OverrideId }),
  errors: ['namespace_not_found', 'precondition_failed', 'too_many_records'],
  needs: { ratelimit: ['set_override'] },

  /** Only a caller that may create namespaces sets an override in one that does not exist. */
  async load({ namespace }, { store, caller }) {
    const found = await store.overrides.findNamespace(caller.workspaceId, namespace);
    if (found) return found;
    if (namespace.startsWith('rlns_')) throw notFound('namespace', namespace);
    if (!caller.grants.holds('ratelimit', '*', 'create_namespace')) throw lacks('ratelimit.*.create_namespace');
    return undefined;
  },
  scope: (_input, namespace) => namespace?.id ?? '*',

  check(input) {
    checkPeriod(input, 'body');
  },

  async handle({ namespace, identifier, until, ...amount }, { store, caller, actor }) {
    requireQuotas([amount], store);
    if (until !== undefined) requireData(store, temporarySince, 'until');
    const result = await store.overrides.set(
      caller.workspaceId,
      { namespace, identifier, ...amount, untilMs: until },
      actor,
    );
    if ('overrideId' in result) return result;
    throw refusalOf(result.refused, namespace);
  },
});

function refusalOf(refused: string, namespace: string): ApiError {
  switch (refused) {
    case 'namespace_not_found':
      return notFound('namespace', namespace);
    case 'ended':
    case 'too_late':
      return endRefused(refused, 'body');
    case 'too_many_in_workspace':
      return invalid(
        'body.identifier',
        `is one wildcard too many: the namespaces of a workspace have at most ${workspaceWildcardsMax} in total`,
      );
    default:
      return invalid('body.identifier', `is one wildcard too many: ${wildcardsBound}`);
  }
}
