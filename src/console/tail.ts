// Decisions as they happen: analytics.tail as a stream of server-sent events. It is read with fetch, because an
// EventSource cannot send a root key in a header.

import { Failure } from './api.ts';
import type { Decision } from './records.ts';
import { currentSignIn } from './session.ts';

interface Listener {
  open: () => void;
  decision: (decision: Decision) => void;
  failed: (failure: Failure) => void;
}

/** Listens until the returned function is called. Connects again when the connection is lost. */
export function listen(filter: object, listener: Listener): () => void {
  const controller = new AbortController();
  run(filter, listener, controller.signal);
  return () => controller.abort();
}

async function run(filter: object, listener: Listener, signal: AbortSignal) {
  for (let waitMs = 500; !signal.aborted; waitMs = Math.min(2 * waitMs, 8000)) {
    try {
      await read(filter, listener, signal);
      waitMs = 500;
    } catch (cause) {
      if (signal.aborted) return;
      const failure =
        cause instanceof Failure ? cause : new Failure(0, { error: { detail: 'The connection was lost.' } });
      listener.failed(failure);
      // The root key lacks a grant: repeating the request does not help.
      if (failure.status >= 400 && failure.status < 500 && failure.status !== 429) return;
    }
    await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
}

async function read(filter: object, listener: Listener, signal: AbortSignal) {
  const response = await fetch('/v2/analytics.tail', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${currentSignIn()?.rootKey}` },
    body: JSON.stringify(filter),
    signal,
  });
  if (!response.ok || !response.body) throw new Failure(response.status, await response.json().catch(() => ({})));
  listener.open();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    // An event ends with an empty line.
    const events = text.split('\n\n');
    text = events.pop()!;
    for (const event of events) {
      const lines = event.split('\n');
      const data = lines.find((line) => line.startsWith('data: '))?.slice('data: '.length);
      // Heartbeats have no data. After the last event the server closes the connection.
      if (data && !lines.includes('event: end')) listener.decision(JSON.parse(data));
    }
  }
}
