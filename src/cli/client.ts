// Calls operations by name for the commands that manage keys: in this process on the server's store, with all grants;
// or over HTTP, if TOLLGATE_URL is set, with the grants of TOLLGATE_ROOT_KEY. A root key is never an argument, which a
// process list would show.

import { PassThrough } from 'node:stream';
import type { Static } from 'typebox';
import type { Config } from '../config.ts';
import { Grants, grantsText } from '../domain/grants.ts';
import { memberTexts, print } from '../domain/json.ts';
import type { FieldError } from '../errors.ts';
import { compileInput } from '../input/validate.ts';
import type { AnyOperation, ManageContext, Streaming } from '../operation.ts';
import { type OperationName, type Operations, operations } from '../operations/index.ts';
import { cliActor } from '../records/rootKeys.ts';
import type { Store } from '../store.ts';

type Named = { [Operation in Operations[number] as Operation['name']]: Operation };
export type InputOf<Name extends OperationName> = Static<Named[Name]['input']>;
export type OutputOf<Name extends OperationName> = Static<Named[Name]['output']>;

export interface CallResult<Data> {
  data: Data;
  /** Passed to the next call, it continues a list; undefined at the end. */
  next: string | undefined;
  looked: number | undefined;
  total: number | undefined;
  /** For refusals: the earliest time that is listed, and the hours of this page. */
  since?: number;
  counted?: readonly { time: number; refused?: number; listed: number }[];
}

export type Call = <Name extends OperationName>(
  name: Name,
  input: InputOf<Name>,
  next?: string,
) => Promise<CallResult<OutputOf<Name>>>;

/** Server-sent events as text, until `close`. */
interface EventStream {
  text: AsyncIterable<string>;
  close(): void;
}

/** Begins to listen to analytics.tail. */
export type Listen = (input: InputOf<'analytics.tail'>) => Promise<EventStream>;

export interface Client {
  call: Call;
  listen: Listen;
}

/** A caller with all grants, on the store of the server. */
export function clientInProcess(store: Store, config: Config, workspaceId: string): Client {
  const handle = async (name: OperationName, input: unknown, after?: string) => {
    const operation = (operations as readonly AnyOperation[]).find((one) => one.name === name)!;
    const text = JSON.stringify(input);
    compileInput(operation.input)(input, text.length);
    if (operation.kind === 'decides') {
      const prepared = operation.prepare(input, await store.rootKeys.anyAdmin(workspaceId), store);
      return { operation, result: JSON.parse(await prepared.decide()) };
    }
    const caller = {
      workspaceId,
      rootKeyId: cliActor.rootKeyId,
      grants: new Grants(grantsText(['*'])),
      lastsMs: Number.POSITIVE_INFINITY,
    };
    const context: ManageContext = {
      store,
      caller,
      reauthenticate: async () => caller,
      actor: { ...cliActor, operation: name },
      requestId: '',
      limits: { metaBytesMax: config.metaBytesMax },
      text: memberTexts(text),
      after,
    };
    operation.check?.(input as never, context);
    const loaded = await operation.load?.(input as never, context);
    return { operation, result: await operation.handle(input as never, context, loaded) };
  };
  const call = async (name: OperationName, input: unknown, after?: string) => {
    const { operation, result } = await handle(name, input, after);
    // The data as JSON, as over HTTP: metadata is stored as text.
    const plain = JSON.parse(print(result));
    if (operation.kind === 'decides' || !operation.list)
      return { data: plain, next: undefined, looked: undefined, total: undefined };
    const { items, ...page } = plain;
    return { ...page, data: items };
  };
  const listen: Listen = async (input) => {
    const stream = (await handle('analytics.tail', input)).result as Streaming;
    const text = new PassThrough({ encoding: 'utf8' });
    stream.start({ write: (events) => void text.write(events), end: () => void text.end() });
    // Servers send decisions only while this process announces itself.
    store.tail.watch();
    return { text, close: () => stream.stop() };
  };
  return { call: call as Call, listen };
}

/** A server that sends nothing for this long is taken for dead. It sends heartbeats in a tail. */
const timeoutMs = 30_000;

interface Body {
  meta?: unknown;
  data: unknown;
  error?: { detail: string; type: string; errors: readonly FieldError[] };
  pagination?: Pick<CallResult<unknown>, 'since' | 'counted'> & { cursor?: string; looked?: number; total?: number };
}

/** A server at this address, with this root key. */
export function clientOverHttp(url: string, rootKey: string): Client {
  if (!rootKey)
    throw new Error('TOLLGATE_URL is set, and TOLLGATE_ROOT_KEY is not. Set it to a root key of that server.');
  const base = URL.canParse(url) ? new URL(url) : undefined;
  // The error of fetch about these would repeat them.
  if (!base || !/^https?:$/.test(base.protocol) || base.username || base.password)
    throw new Error('TOLLGATE_URL must be http://… or https://…, without user and password.');
  if (!/^[\x21-\x7e]+$/.test(rootKey)) throw new Error('TOLLGATE_ROOT_KEY has characters that no root key has.');
  const send = (name: OperationName, input: object, signal: AbortSignal) =>
    fetch(`${base.href.replace(/\/(v2\/?)?$/, '')}/v2/${name}`, {
      method: 'POST',
      redirect: 'error',
      headers: { Authorization: `Bearer ${rootKey}`, 'Content-Type': 'application/json' },
      body: JSON.stringify(input),
      signal,
    }).catch(unreachable);
  const call = async (name: OperationName, input: object, cursor?: string) => {
    const all = { ...input, ...(cursor !== undefined && { cursor }) };
    const { data, pagination } = await bodyOf(await send(name, all, AbortSignal.timeout(timeoutMs)));
    const { cursor: next, looked, total, since, counted } = pagination ?? {};
    return { data: itemsOf(name, data), next, looked, total, since, counted };
  };
  const listen: Listen = async (input) => {
    const connection = new AbortController();
    const silence = setTimeout(() => connection.abort(new Error('it sends nothing')), timeoutMs);
    const close = () => {
      clearTimeout(silence);
      connection.abort();
    };
    try {
      const response = await send('analytics.tail', input, connection.signal);
      const isStream = response.headers.get('content-type')?.startsWith('text/event-stream');
      if (!isStream) await bodyOf(response);
      if (!isStream || !response.body) throw new Error('The server at TOLLGATE_URL has no tail.');
      return { text: chunksOf(response.body, () => silence.refresh()), close };
    } catch (error) {
      close();
      throw error;
    }
  };
  return { call: call as Call, listen };
}

/** The list in a member of the response of an operation; other data is returned unchanged. */
function itemsOf(name: OperationName, data: unknown): unknown {
  const operation = (operations as readonly AnyOperation[]).find((one) => one.name === name);
  const member = operation?.kind === 'manages' ? operation.wrapItems : undefined;
  return member === undefined ? data : (data as Record<string, unknown>)[member];
}

function unreachable(error: Error): never {
  const { message, code = '' }: NodeJS.ErrnoException = error.cause instanceof Error ? error.cause : error;
  const notSent = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'].includes(`${code}`);
  throw Object.assign(new Error(`The server at TOLLGATE_URL cannot be reached: ${message}.`), { status: 503, notSent });
}

/** The body of a response. Throws the error that it describes. */
async function bodyOf(response: Response): Promise<Body> {
  const body = (await response.json().catch(() => undefined)) as Body | undefined;
  if (!body?.meta) throw new Error(`The server at TOLLGATE_URL is not Tollgate: HTTP ${response.status}.`);
  if (body.error) {
    const { detail, type, errors } = body.error;
    throw Object.assign(new Error(detail), { status: response.status, code: type.split('/').at(-1), fields: errors });
  }
  return body;
}

async function* chunksOf(body: NonNullable<Response['body']>, onChunk: () => void): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  try {
    for await (const chunk of body) {
      onChunk();
      yield decoder.decode(chunk, { stream: true });
    }
  } catch (cause) {
    unreachable(cause as Error);
  }
}
