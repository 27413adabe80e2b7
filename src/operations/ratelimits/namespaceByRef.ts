// Shared by the operations on overrides: loading the namespace, and the id that scoped grants must name.

import { ApiError } from '../../errors.ts';
import type { ManageContext } from '../../operation.ts';
import type { Namespace, Override as OverrideRecord } from '../../records/overrides.ts';

export const namespaceNotFound = (nameOrId: string) =>
  new ApiError('namespace_not_found', `There is no namespace ${JSON.stringify(nameOrId)}.`);
export const overrideNotFound = () =>
  new ApiError('override_not_found', 'There is no override for exactly this identifier.');

export async function loadNamespace(
  { namespace }: { namespace: string },
  { store, caller }: ManageContext,
): Promise<Namespace> {
  const found = await store.overrides.findNamespace(caller.workspaceId, namespace);
  if (!found) throw namespaceNotFound(namespace);
  return found;
}

export const scopeOfNamespace = (_input: unknown, namespace: Namespace): string => namespace.id;

/** An override in a response. */
export const showOverride = ({ overrideId, ...override }: OverrideRecord, namespace: Namespace) => ({
  overrideId,
  namespace: namespace.name,
  namespaceId: namespace.id,
  ...override,
});
