import { manages } from '../../operation.ts';
import { Empty, Fields } from '../schemas.ts';
import { updateRootKey } from './updateRootKey.ts';

const { description, input, errors = [], needs } = updateRootKey;
const { rootKeyId, ...changes } = input.properties;

export const updateKey = manages({
  name: 'rootKeys.updateKey',
  summary: "Does what `rootKeys.updateRootKey` does, by the names of Unkey's SDKs.",
  ...{ description: description!, errors, needs },
  input: Fields({ keyId: rootKeyId, ...changes }),
  output: Empty,
  check: ({ keyId, ...rest }, context) => updateRootKey.check?.({ rootKeyId: keyId, ...rest }, context),
  handle: ({ keyId, ...rest }, context) =>
    updateRootKey.handle({ rootKeyId: keyId, ...rest }, context, undefined) as Promise<object>,
});
