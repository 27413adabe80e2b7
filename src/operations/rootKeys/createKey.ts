import Type, { type Static } from 'typebox';
import { manages } from '../../operation.ts';
import { NewFields, out } from '../schemas.ts';
import { createRootKey } from './createRootKey.ts';

export const NewKey = Type.Object({
  keyId: out.text('Id of the new root key.'),
  key: out.secret('The root key string. It is not stored.'),
});

export const createKey = manages({
  ...createRootKey,
  name: 'rootKeys.createKey',
  summary: "Does what `rootKeys.createRootKey` does, by the names of Unkey's SDKs.",
  description: 'null in an optional field means that it is absent.',
  input: NewFields(createRootKey.input.properties),
  output: NewKey,
  async handle(input, context) {
    const made = (await createRootKey.handle(input, context, undefined)) as Static<typeof createRootKey.output>;
    return { keyId: made.rootKeyId, key: made.key };
  },
});
