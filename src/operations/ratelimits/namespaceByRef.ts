// Shared by the operations on overrides: loading the namespace, and the id that scoped grants must name.

import { existing } from '../../errors.ts';
import type { ManageContext } from '../../operation.ts';
import type { Namespace, Override as OverrideRecord } from '../../records/overrides.ts';

export async function loadNamespace(
  { namespace }: { namespace: string },
  { store, caller }: ManageContext,
): Promise<Namespace> {
  return existing(await store.overrides.findNamespace(caller.workspaceId, namespace), 'namespace', namespace);
}

export const scopeOfNamespace = (_input: unknown, namespace: Namespace): string => namespace.id;

/** An override in a response. */
export const showOverride = ({ overrideId, ...override }: OverrideRecord, namespace: Namespace) => ({
  overrideId,
  namespace: namespace.name,
  namespaceId: namespace.id,
  ...override,
});
