// The operations of a kind of record (src/domain/records.ts) that list all records, or take a reference to one: its id
// or its name. Their grants and errors follow from the kind.

import Type, { type Static, type TObject, type TProperties, type TSchema } from 'typebox';
import type { Actor } from '../domain/caller.ts';
import { isScoped } from '../domain/grants.ts';
import { type RecordName, records } from '../domain/records.ts';
import { existing } from '../errors.ts';
import { manages } from '../operation.ts';
import type { PageOf } from '../records/pages.ts';
import type { Store } from '../store.ts';
import { byReference } from './rules.ts';
import { Empty, Fields, searchFields } from './schemas.ts';

/** The functions of the store for the kind. */
interface Room<Found> {
  find(workspaceId: string, reference: string): Promise<Found | undefined>;
  delete(workspaceId: string, reference: string, actor: Actor, given: object): Promise<boolean>;
  list(
    workspaceId: string,
    page: { after: string | undefined; count: number; search: string | undefined; [filter: string]: unknown },
  ): Promise<PageOf<Found>>;
}

interface Described<Name extends string> {
  name: Name;
  summary: string;
  readsMuch?: true;
  problems?: true;
}

const Listed = Fields(searchFields);

/** `ref` is the schema of a reference, `item` that of a record in responses. */
export function recordOperations<
  Kind extends RecordName,
  Ref extends TSchema,
  Item extends TSchema,
  Found extends { id: string },
>({ kind, ref, item, roomOf }: { kind: Kind; ref: Ref; item: Item; roomOf: (store: Store) => Room<Found> }) {
  type Reference = Record<Kind, string>;
  const { resource } = records[kind];
  const needs = (action: string) => ({ needs: { [resource]: [`${action}_${kind}`] } });
  const described = { input: Type.Unsafe<Reference>(Fields({ [kind]: ref })), errors: [`${kind}_not_found`] as const };
  const references = byReference(kind, (store, workspaceId, reference) => roomOf(store).find(workspaceId, reference));
  // If grants name no ids of the kind, they are checked before the record is looked up.
  const scoped: Partial<typeof references> = isScoped(resource) ? references : {};

  return {
    /** `load` and `scope` of further operations. */
    byReference: references,

    get: <const Name extends string>(operation: Described<Name>) =>
      manages({
        ...operation,
        ...described,
        ...needs('read'),
        ...scoped,
        output: item,
        handle: async (given, context, found: Found | undefined) =>
          (found ?? (await references.load(given, context))) as never,
      }),

    delete: <const Name extends string, Options extends TProperties = Record<never, never>>({
      options = {} as Options,
      ...operation
    }: Described<Name> & { options?: Options }) =>
      manages({
        ...operation,
        ...described,
        input: Type.Unsafe<Reference & Static<TObject<Options>>>(Fields({ [kind]: ref, ...options })),
        ...needs('delete'),
        ...scoped,
        output: Empty,
        async handle(given, { store, caller, actor }, found: Found | undefined) {
          const { [kind]: reference, ...more } = given;
          const room = roomOf(store);
          existing(await room.delete(caller.workspaceId, found?.id ?? reference, actor, more), kind, reference);
          return {};
        },
      }),

    list: <const Name extends `${string}.list${string}`, Filters extends TProperties = Record<never, never>>({
      filters = {} as Filters,
      ...operation
    }: Described<Name> & { filters?: Filters }) =>
      manages({
        ...operation,
        ...needs('read'),
        input: Fields({ ...searchFields, ...filters }),
        output: Type.Array(item),
        // `plans` of `plans.listPlans`. A cursor is valid only for the list it came from.
        list: (input) =>
          `${'deleted' in input && input.deleted ? 'deleted-' : ''}${operation.name.replace(/^.*\.list/, '').toLowerCase()}`,
        listedIds: kind,
        handle(input, { store, caller, after }) {
          const { limit = 100, search, cursor: _cursor, ...given } = input as Static<typeof Listed>;
          return roomOf(store).list(caller.workspaceId, { ...given, after, count: limit, search }) as never;
        },
      }),
  };
}
