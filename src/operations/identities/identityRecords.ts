import { recordOperations } from '../recordOperations.ts';
import { IdentityRef, ListedIdentity } from '../schemas.ts';

export const identities = recordOperations({
  kind: 'identity',
  ref: IdentityRef,
  item: ListedIdentity,
  roomOf: (store) => store.identities,
});
