import { byReference } from '../rules.ts';

export const byIdentity = byReference('identity', (store, workspaceId, reference) =>
  store.identities.find(workspaceId, reference),
);
