// Requests to a server on a real socket, as callers send them, on connections that are kept open.

import { Agent, request } from 'node:http';
import type { OperationName } from '../../src/operations/index.ts';
import type { ErrorBody, InputOf, OutputOf } from './harness.ts';
import { atEnd } from './processes.ts';

/** A response, or status 0 and the error of a connection that ended without one. */
export interface Answered {
  status: number;
  body: string;
  /** From the call to the last byte. */
  tookMs: number;
}

export interface Called<Data> extends Answered {
  data: Data;
  error: ErrorBody;
  code: string | undefined;
  pagination: { hasMore: boolean; cursor?: string };
}

export type Client = ReturnType<typeof openClient>;

/** `url` may differ between calls, because a server that is started again has another one. */
export function openClient(url: string | (() => string), rootKey: string) {
  // The client closes idle connections before the server does, which could lose a request that is on its way.
  const agent = new Agent({ keepAlive: true, timeout: 5_000 });
  const close = () => agent.destroy();
  atEnd(close);

  function send(operation: OperationName, body: string | Buffer, as = rootKey, using = agent): Promise<Answered> {
    const startedAt = performance.now();
    return new Promise((resolve) => {
      const ended = (status: number, body: string) => resolve({ status, body, tookMs: performance.now() - startedAt });
      const failed = (error: Error) => ended(0, String(error));
      const headers = {
        authorization: `Bearer ${as}`,
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      };
      const at = typeof url === 'string' ? url : url();
      request(`${at}/v2/${operation}`, { agent: using, method: 'POST', headers })
        .on('error', failed)
        .on('response', (response) => {
          const chunks: Buffer[] = [];
          const answered = () => ended(response.statusCode!, Buffer.concat(chunks).toString());
          response.on('data', (chunk) => {
            chunks.push(chunk);
            if (response.headers['content-type'] !== 'text/event-stream') return;
            // A stream has no end. Its beginning is the answer.
            answered();
            response.destroy();
          });
          response.on('error', failed);
          response.on('end', answered);
        })
        .end(body);
    });
  }

  async function call<Name extends OperationName>(
    name: Name,
    input: InputOf<Name>,
    as = rootKey,
  ): Promise<Called<OutputOf<Name>>> {
    const answered = await send(name, JSON.stringify(input), as);
    const json = answered.status === 0 ? {} : JSON.parse(answered.body);
    const { data, error, pagination } = json;
    return { ...answered, data, error, pagination, code: error?.type.split('/').at(-1) };
  }

  /** The data of a call that must succeed. */
  async function ok<Name extends OperationName>(
    name: Name,
    input: InputOf<Name>,
    as = rootKey,
  ): Promise<OutputOf<Name>> {
    const { status, body, data } = await call(name, input, as);
    if (status !== 200) throw new Error(`${name}: ${status} ${body.slice(0, 300)}`);
    return data;
  }

  return { send, call, ok, close };
}
