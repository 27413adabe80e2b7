// Requests to a pipeline, without a socket, and how long they took.

import type { Handler, Response } from '../../src/http/message.ts';
import { requestTo } from '../support/harness.ts';

export interface Timed extends Response {
  tookMs: number;
  /** When it came, on performance.now's clock. */
  atMs: number;
}

export async function sendTimed(answer: Handler, operation: string, rootKey: string, input: unknown): Promise<Timed> {
  const startedAt = performance.now();
  const response = await answer(requestTo(`/v2/${operation}`, rootKey, { body: JSON.stringify(input) }));
  const atMs = performance.now();
  return { ...response, tookMs: atMs - startedAt, atMs };
}
