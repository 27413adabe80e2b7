import { manages } from '../../operation.ts';
import { Empty, Fields, RootKeyId } from '../schemas.ts';
import { deleteRootKey } from './deleteRootKey.ts';

const { description, errors = [], needs } = deleteRootKey;

export const deleteKey = manages({
  name: 'rootKeys.deleteKey',
  summary: "Does what `rootKeys.deleteRootKey` does, by the names of Unkey's SDKs.",
  ...{ description: description!, errors, needs },
  input: Fields({ keyId: RootKeyId }),
  output: Empty,
  handle: ({ keyId }, context) => deleteRootKey.handle({ rootKeyId: keyId }, context, undefined) as Promise<object>,
});
