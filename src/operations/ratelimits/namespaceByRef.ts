// Shared by the operations on overrides: loading the namespace, and the id that scoped grants must name.

import type { Namespace, Override as OverrideRecord } from '../../records/overrides.ts';
import { byReference } from '../rules.ts';

export const byNamespace = byReference('namespace', (store, workspaceId, reference) =>
  store.overrides.findNamespace(workspaceId, reference),
);

/** An override in a response. */
export const showOverride = ({ overrideId, ...override }: OverrideRecord, namespace: Namespace) => ({
  overrideId,
  namespace: namespace.name,
  namespaceId: namespace.id,
  ...override,
});
