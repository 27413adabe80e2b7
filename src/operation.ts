// The type of an operation. Routing, validation, authorisation, response bodies, the OpenAPI document and the contract
// tests read these fields, so nothing generic is written twice.

import type { Static, TSchema } from 'typebox';
import type { Prepared } from './decide/kind.ts';
import type { Actor, Caller, PresentedRootKey } from './domain/caller.ts';
import type { Finding } from './domain/finding.ts';
import { type Action, isToRead, type Resource } from './domain/grants.ts';
import type { Pagination } from './domain/pagination.ts';
import type { RecordName } from './domain/records.ts';
import type { Times } from './domain/time.ts';
import type { ErrorCode } from './errors.ts';
import type { Store } from './store.ts';

/** The actions of which an operation requires all, by resource. */
export type Needs = { readonly [R in Resource]?: readonly Action<R>[] };

/**
 * The id that a scoped grant must name: one for all of `needs`, or one for each resource. `*` is a resource without an
 * id. Undefined if the operation itself returns only what the grants of the caller cover.
 */
export type Scope = string | undefined | { readonly [R in Resource]?: string };

/**
 * The ids that determine the order of a list: of a kind of record, `expiring_key` for keys in order of expiry, `hold`
 * for holds, `temporary` for temporary limits in order of their end, `stream` for the events of a stream, `row` for
 * rows of counts, `customer` for customers, `refusal` for rows of refusals.
 */
export type ListedIds = RecordName | 'expiring_key' | 'hold' | 'temporary' | 'stream' | 'row' | 'customer' | 'refusal';

export interface Context {
  store: Store;
  requestId: string;
  limits: { metaBytesMax: number };
  /** The durations of this server's recent decisions; undefined on the command line. */
  decisionTimes?: () => Times;
  /** Checks of the server that do not concern Redis, for a caller of this workspace; undefined on the command line. */
  checks?: ((workspaceId: string) => Promise<Finding[]>) | undefined;
  /** Returns a member of the request body as text, for JSON that is stored unchanged. */
  text(...path: (string | number)[]): string | undefined;
}

export interface ManageContext extends Context {
  caller: Caller;
  /** Authenticates the root key again, for an operation that lasts. */
  reauthenticate(): Promise<Caller>;
  actor: Actor;
  /** The id after which a page of a list starts. */
  after: string | undefined;
}

interface Described<Name extends string, Input extends TSchema, Output extends TSchema> {
  /** Also the path, `/v2/<name>`, and the file, `operations/<service>/<procedure>.ts`. */
  name: Name;
  /** A second path with the same behaviour, except for `wrapItems`. */
  alias?: string;
  summary: string;
  /** More than the summary, as Markdown. For the OpenAPI document. */
  description?: string;
  input: Input;
  output: Output;
  /** Errors in addition to those of every operation, for the OpenAPI document. */
  errors?: readonly ErrorCode[];
  /** Actions the caller must have. Conditional ones are checked by the operation. */
  needs: Needs;
  /** Errors are always application/problem+json, which the SDK expects of a few operations. */
  problems?: true;
}

/** Where a stream is written. Nothing waits: the server closes the connection of a slow reader. */
export interface StreamSink {
  write(text: string): void;
  end(): void;
}

/** A response of server-sent events, without an end of its own. */
export interface Streaming {
  /** Called once, when the headers were sent. */
  start(sink: StreamSink): void;
  /** Called when the connection is gone; with a reason when the stream should end, which it then sends. */
  stop(reason?: string): void;
}

/** A page of a list. `next` is the id after which the next page starts, if there is one. */
export interface Page<Item> extends Omit<Pagination, 'hasMore' | 'cursor'> {
  items: Item[];
  next: string | undefined;
}

/**
 * An operation that manages. The pipeline authenticates the caller, calls `load`, authorises the caller for `scope`,
 * and calls `handle`.
 */
interface Manages<Name extends string, Input extends TSchema, Output extends TSchema, Loaded>
  extends Described<Name, Input, Output> {
  kind: 'manages';
  /** Rejects input by rules that a schema cannot express. Runs before authentication. */
  check?(input: Static<Input>, context: Context): void;
  /** Reads what `scope` depends on in addition to the input. Throws if it does not exist. */
  load?(input: Static<Input>, context: ManageContext): Promise<Loaded>;
  scope(input: Static<Input>, loaded: Loaded): Scope;
  /** Replaces the error of a caller without permission, to hide that the resource exists. */
  refuseAs?: ErrorCode;
  /**
   * Makes the operation a list: its input has a `cursor`, `context.after` is the id in it, and `handle` returns a page.
   * Returns the name of the list, in one word. A cursor is valid only for the list it came from.
   */
  list?(input: Static<Input>): string;
  /** The ids in the cursors of the list, which may depend on the input. */
  listedIds?: ListedIds | ((input: Static<Input>) => ListedIds);
  /** A request without a body has the input `{}`: of an SDK that sends none. */
  mayLackBody?: true;
  /** The longest body in bytes, where that is more than others have. */
  bodyBytesMax?: number;
  /** Changes records, though no grant is needed in all cases. */
  changes?: true;
  /** May read very much, like any list, so that few run concurrently per workspace. */
  readsMuch?: true;
  /** The response is a stream of events; `output` is the data of each, and `handle` returns a Streaming. */
  streams?: true;
  /** `data` has the list in a member of this name, except in calls by the alias. */
  wrapItems?: string;
  handle(input: Static<Input>, context: ManageContext, loaded: Loaded): Promise<unknown>;
}

/**
 * An operation on the hot path. Its script authenticates and authorises as well as decides, so `prepare` gets an
 * unchecked root key. It checks rules that a schema cannot express, and throws for input that breaks one. The result
 * may be cached to decide further requests with the same root key and body, so it must not refer to a secret of the
 * input.
 */
interface Decides<Name extends string, Input extends TSchema, Output extends TSchema>
  extends Described<Name, Input, Output> {
  kind: 'decides';
  /** Its decisions are `data` as text. */
  prepare(input: Static<Input>, rootKey: PresentedRootKey, store: Store): Prepared<string>;
}

// biome-ignore lint/suspicious/noExplicitAny: the registry has operations of every type.
export type AnyOperation = Manages<string, TSchema, TSchema, any> | Decides<string, TSchema, TSchema>;

/** Whether an operation changes and charges nothing: it manages, and all that it needs are grants to read. */
export const onlyReads = (operation: AnyOperation): boolean =>
  operation.kind === 'manages' && !operation.changes && Object.values(operation.needs).flat().every(isToRead);

/** Without `scope` the caller needs grants for `*`. */
export function manages<const Name extends string, Input extends TSchema, Output extends TSchema, Loaded = undefined>(
  operation: Omit<Manages<Name, Input, Output, Loaded>, 'kind' | 'handle' | 'scope'> & {
    scope?(input: Static<Input>, loaded: Loaded): Scope;
    handle(
      input: Static<Input>,
      context: ManageContext,
      loaded: Loaded,
    ): Promise<Static<Output> extends readonly (infer Item)[] ? Page<Item> | Static<Output> : Static<Output>>;
  },
): Manages<Name, Input, Output, Loaded> {
  return { kind: 'manages', scope: () => '*', ...operation } as Manages<Name, Input, Output, Loaded>;
}

export function streams<const Name extends string, Input extends TSchema, Output extends TSchema>(
  operation: Omit<Manages<Name, Input, Output, undefined>, 'kind' | 'handle' | 'streams'> & {
    handle(input: Static<Input>, context: ManageContext): Promise<Streaming>;
  },
): Manages<Name, Input, Output, undefined> {
  return { kind: 'manages', streams: true, ...operation };
}

export function decides<const Name extends string, Input extends TSchema, Output extends TSchema>(
  operation: Omit<Decides<Name, Input, Output>, 'kind'>,
): Decides<Name, Input, Output> {
  return { kind: 'decides', ...operation };
}

/** Decides and prints, for `prepare`. */
export class Printed<Decision> implements Prepared<string> {
  readonly #prepared: Prepared<Decision>;
  readonly #print: (decision: Decision) => string;

  constructor(prepared: Prepared<Decision>, print: (decision: Decision) => string) {
    this.#prepared = prepared;
    this.#print = print;
  }

  decide(): string | Promise<string> {
    const decision = this.#prepared.decide();
    return decision instanceof Promise ? decision.then(this.#print) : this.#print(decision);
  }
}
