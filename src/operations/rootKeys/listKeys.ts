import type { Static } from 'typebox';
import { manages, type Page } from '../../operation.ts';
import { Nullable, out } from '../schemas.ts';
import { listRootKeys } from './listRootKeys.ts';

const { permissions, enabled, createdAt, start } = listRootKeys.output.items.properties;

export const listKeys = manages({
  ...listRootKeys,
  name: 'rootKeys.listKeys',
  summary: "Does what `rootKeys.listRootKeys` does, by the names of Unkey's SDKs.",
  output: out.list({
    keyId: out.text('Id of the root key.'),
    name: Nullable(out.text('Name for people. null: none.')),
    start,
    end: out.text('Always empty: the last characters of the string are not stored.'),
    permissions,
    enabled,
    expires: Nullable(out.int('Expiry time in Unix milliseconds. null: never.')),
    createdAt,
    lastUsedAt: out.int('Time of its last use in Unix milliseconds. 0: never.'),
  }),
  async handle(input, context) {
    const listed = await listRootKeys.handle(input, context, undefined);
    const { items, ...page } = listed as Page<Static<typeof listRootKeys.output>[number]>;
    const named = items.map(({ rootKeyId, name = null, expires = null, lastUsedAt = 0, ...rest }) => {
      return { keyId: rootKeyId, name, end: '', expires, lastUsedAt, ...rest };
    });
    return { items: named, ...page };
  },
});
