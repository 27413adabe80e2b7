// What an operation is. Everything generic (routing, validation, authorisation, envelopes, the OpenAPI document, the
// contract tests) reads these fields, so nothing generic is written twice.

import type { Static, TSchema } from 'typebox';
import type { Actor, Caller, PresentedRootKey } from './domain/caller.ts';
import type { Action, Resource } from './domain/grants.ts';
import type { ErrorCode } from './errors.ts';
import type { Store } from './store/store.ts';

/** The actions an operation needs, by resource: all of them. */
export type Needs = { readonly [R in Resource]?: readonly Action<R>[] };

/** The ids that a list is in order of: those with this prefix, or of events in a stream. */
export type ListedIds = 'key' | 'id' | 'perm' | 'role' | 'rlor' | 'root' | 'stream';

export interface Context {
  store: Store;
  requestId: string;
  limits: { metaBytesMax: number };
  /** The text of a member of the request body, for JSON that is stored as it came. */
  text(...path: (string | number)[]): string | undefined;
}

export interface ManageContext extends Context {
  caller: Caller;
  actor: Actor;
  /** Where a list goes on: after the item with this id. */
  after: string | undefined;
}

interface Described<Name extends string, Input extends TSchema, Output extends TSchema> {
  /** Also the path, `/v2/<name>`, and the file, `operations/<service>/<procedure>.ts`. */
  name: Name;
  /** A second path that answers alike, but for `wrapItems`. */
  alias?: string;
  summary: string;
  input: Input;
  output: Output;
  /** Errors beyond those every operation has, for the OpenAPI document. */
  errors?: readonly ErrorCode[];
  /** Actions the caller needs. What depends on more than the ids in the request is checked where it is known. */
  needs: Needs;
  /** Errors always come as application/problem+json, which the SDK expects of a few operations. */
  problems?: true;
}

/** A page of a list: its items, and the id to go on after when there are more. */
export interface Page<Item> {
  items: Item[];
  next: string | undefined;
}

/**
 * An operation that manages: the pipeline authenticates, then `load` reads what the permission depends on, then the
 * caller is authorised for `scope`, then `handle` does it.
 */
export interface Manages<Name extends string, Input extends TSchema, Output extends TSchema, Loaded>
  extends Described<Name, Input, Output> {
  kind: 'manages';
  /** Refuses input by rules that a schema cannot say. Comes before anything is known of the caller. */
  check?(input: Static<Input>, context: Context): void;
  /** Reads what `scope` must know; throws what is absent. Left out when the input says it all. */
  load?(input: Static<Input>, context: ManageContext): Promise<Loaded>;
  /**
   * The id that scoped grants must name; `*` when there is none. Undefined where the operation itself answers no more
   * than the grants name.
   */
  scope(input: Static<Input>, loaded: Loaded): string | undefined;
  /** Answers a refusal with this instead, to hide that the resource exists. */
  refuseAs?: ErrorCode;
  /**
   * The operation lists: its input has a `cursor`, `context.after` the id that stands for, and `handle` answers a page.
   * This names the list, in one word: a cursor is good only for the list it came from.
   */
  list?(input: Static<Input>): string;
  /** The ids in the cursors of that list. */
  listedIds?: ListedIds;
  /** It may read very much: of a workspace few run at once. */
  readsMuch?: true;
  /** The list is a member of this name in `data`, but for calls by the alias. */
  wrapItems?: string;
  handle(input: Static<Input>, context: ManageContext, loaded: Loaded): Promise<unknown>;
}

/**
 * An operation on the hot path: its script authenticates and authorises as well as decides, so `decide` gets the root
 * key unchecked. It answers `data` as text; it may also throw at once.
 */
export interface Decides<Name extends string, Input extends TSchema, Output extends TSchema>
  extends Described<Name, Input, Output> {
  kind: 'decides';
  decide(input: Static<Input>, rootKey: PresentedRootKey, context: Context): Promise<string>;
}

// biome-ignore lint/suspicious/noExplicitAny: the registry holds operations of every shape.
export type AnyOperation = Manages<string, TSchema, TSchema, any> | Decides<string, TSchema, TSchema>;

export function manages<const Name extends string, Input extends TSchema, Output extends TSchema, Loaded = undefined>(
  operation: Omit<Manages<Name, Input, Output, Loaded>, 'kind' | 'handle'> & {
    handle(
      input: Static<Input>,
      context: ManageContext,
      loaded: Loaded,
    ): Promise<Static<Output> extends readonly (infer Item)[] ? Page<Item> | Static<Output> : Static<Output>>;
  },
): Manages<Name, Input, Output, Loaded> {
  return { kind: 'manages', ...operation } as Manages<Name, Input, Output, Loaded>;
}

export function decides<const Name extends string, Input extends TSchema, Output extends TSchema>(
  operation: Omit<Decides<Name, Input, Output>, 'kind'>,
): Decides<Name, Input, Output> {
  return { kind: 'decides', ...operation };
}
