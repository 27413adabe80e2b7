// Calls operations by name for the commands that manage keys: in this process on the server's store, with all grants; or over HTTP,
// if TOLLGATE_URL is set, with the grants of TOLLGATE_ROOT_KEY. A root key is never an argument, which a process list would show.

import type { Static } from 'typebox';
import type { Config } from '../config.ts';
import { Grants, grantsText } from '../domain/grants.ts';
import { memberTexts, print } from '../domain/json.ts';
import { compileInput } from '../input/validate.ts';
import type { AnyOperation, ManageContext } from '../operation.ts';
import { type OperationName, type Operations, operations } from '../operations/index.ts';
import { cliActor } from '../store/rootKeys.ts';
import type { Store } from '../store/store.ts';

type Named = { [Operation in Operations[number] as Operation['name']]: Operation };
type InputOf<Name extends OperationName> = Static<Named[Name]['input']>;
export type OutputOf<Name extends OperationName> = Static<Named[Name]['output']>;

export interface Answer<Data> {
  data: Data;
  /** Passed to the next call, it continues a list; undefined at the end. */
  next: string | undefined;
  looked: number | undefined;
  total: number | undefined;
}

export type Call = <Name extends OperationName>(
  name: Name,
  input: InputOf<Name>,
  next?: string,
) => Promise<Answer<OutputOf<Name>>>;

/** A caller with all grants, on the store of the server. */
export function callInProcess(store: Store, config: Config, workspaceId: string): Call {
  const call = async (name: OperationName, input: unknown, after?: string) => {
    const operation = (operations as readonly AnyOperation[]).find((one) => one.name === name)!;
    if (operation.kind !== 'manages') throw new Error(`${name} is not available on the command line.`);
    const text = JSON.stringify(input);
    compileInput(operation.input)(input, text.length);
    const caller = { workspaceId, rootKeyId: cliActor.rootKeyId, grants: new Grants(grantsText(['*'])) };
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
    const result = await operation.handle(input as never, context, loaded);
    // As JSON, as over HTTP: metadata is stored as text.
    const plain = JSON.parse(print(result));
    if (!operation.list) return { data: plain, next: undefined, looked: undefined, total: undefined };
    const { items, ...page } = plain;
    return { ...page, data: items };
  };
  return call as Call;
}

const timeoutMs = 30_000;

interface Body {
  meta?: unknown;
  data: unknown;
  error?: { detail: string };
  pagination?: { cursor?: string; looked?: number; total?: number };
}

/** A server at this address, with this root key. */
export function callOverHttp(url: string, rootKey: string | undefined): Call {
  if (!rootKey)
    throw new Error('TOLLGATE_URL is set, and TOLLGATE_ROOT_KEY is not. Set it to a root key of that server.');
  const base = URL.canParse(url) ? new URL(url) : undefined;
  if (!base || !/^https?:$/.test(base.protocol)) throw new Error('TOLLGATE_URL must be http://… or https://….');
  const call = async (name: OperationName, input: object, cursor?: string) => {
    const response = await fetch(`${base.href.replace(/\/$/, '')}/v2/${name}`, {
      method: 'POST',
      redirect: 'error',
      headers: { Authorization: `Bearer ${rootKey}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ ...input, ...(cursor !== undefined && { cursor }) }),
      signal: AbortSignal.timeout(timeoutMs),
    }).catch((cause) => {
      throw new Error(`The server at TOLLGATE_URL cannot be reached: ${cause.cause?.message ?? cause.message}.`);
    });
    const body = (await response.json().catch(() => undefined)) as Body | undefined;
    if (!body?.meta) throw new Error(`The server at TOLLGATE_URL is not Tollgate: HTTP ${response.status}.`);
    if (body.error) throw new Error(body.error.detail);
    const { cursor: next, looked, total } = body.pagination ?? {};
    return { data: body.data, next, looked, total };
  };
  return call as Call;
}
