// How the operations on overrides find the namespace and whom they allow: by its id.

import { ApiError } from '../../errors.ts';
import type { ManageContext } from '../../operation.ts';
import type { Namespace, Override as OverrideRecord } from '../../store/overrides.ts';

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

/** An override as docs/contract.md §4 shows it. */
export const showOverride = ({ overrideId, ...override }: OverrideRecord, namespace: Namespace) => ({
  overrideId,
  namespace: namespace.name,
  namespaceId: namespace.id,
  ...override,
});
