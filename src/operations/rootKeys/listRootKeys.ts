import Type from 'typebox';
import { manages } from '../../operation.ts';
import { CreatedAt, ExpiresAt, Fields, may, OptionalFlag, out, pageFields } from '../schemas.ts';
import { enabledDescription } from './grantList.ts';

export const listRootKeys = manages({
  name: 'rootKeys.listRootKeys',
  summary: 'List root keys in order of creation.',
  input: Fields({
    ...pageFields,
    ending: OptionalFlag(
      'List only root keys that end within 14 days and were used in the last 7 days, or that ended in the last day and were used in the ten minutes before. A page may be empty although there are more.',
      false,
    ),
  }),
  output: out.list({
    rootKeyId: out.text('Id of the root key.'),
    name: may.text('Name for people.'),
    start: out.text('First characters of the root key string.'),
    permissions: Type.Array(Type.String(), { description: 'Its grants.' }),
    enabled: out.flag(enabledDescription),
    expires: Type.Optional(ExpiresAt),
    createdAt: CreatedAt,
    lastUsedAt: may.int('Time of its last use in Unix milliseconds.'),
  }),
  needs: { root_key: ['read_root_key'] },
  list: () => 'rootKeys',
  listedIds: 'root_key',

  async handle({ limit = 100, ending = false }, { store, caller, after }) {
    if (ending) {
      const { rootKeys, next } = await store.rootKeys.listEnding(caller.workspaceId, { after, count: limit });
      return { items: rootKeys, next };
    }
    const { rootKeys, more } = await store.rootKeys.list(caller.workspaceId, { after, count: limit });
    return { items: rootKeys, next: more ? rootKeys.at(-1)?.rootKeyId : undefined };
  },
});
