// Requests to a pipeline without a socket, with the time that each took.

import type { Handler, Response } from '../../src/http/message.ts';
import { requestTo } from '../support/harness.ts';

export interface Timed extends Response {
  tookMs: number;
  /** The time of the response, by performance.now(). */
  atMs: number;
}

export async function sendTimed(answer: Handler, operation: string, rootKey: string, input: unknown): Promise<Timed> {
  const startedAt = performance.now();
  const response = await answer(requestTo(`/v2/${operation}`, rootKey, { body: JSON.stringify(input) }));
  const atMs = performance.now();
  return { ...response, tookMs: atMs - startedAt, atMs };
}
