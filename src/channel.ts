// Requests between the first process and its workers, over the channel that Node opens between them.

/** One end of a channel: a ChildProcess, or `process` in the child. */
interface ChannelEnd {
  send?(message: object, callback: (error: Error | null) => void): boolean;
  on(event: 'message', listener: (message: unknown) => void): unknown;
}

type Message = { request: string; id: number } | { reply: number; value: unknown };

/**
 * Opens this end; `handlers` are the requests that it accepts. `request` resolves to the reply of the other end, and
 * rejects if there is none within `timeoutMs`.
 */
export function openChannel(end: ChannelEnd, handlers: Record<string, () => Promise<unknown>>) {
  const waiting = new Map<number, (value: unknown) => void>();
  let lastId = 0;
  // A message that cannot be sent gets no reply, so the request times out.
  const send = (message: Message) => end.send?.(message, () => {});

  end.on('message', (message) => {
    if (typeof message !== 'object' || message === null) return;
    if ('request' in message) {
      const { request, id } = message as Extract<Message, { request: string }>;
      handlers[request]?.().then(
        (value) => send({ reply: id, value }),
        () => {},
      );
    } else if ('reply' in message) {
      const { reply, value } = message as Extract<Message, { reply: number }>;
      waiting.get(reply)?.(value);
    }
  });

  return {
    request<Reply>(name: string, timeoutMs: number): Promise<Reply> {
      const id = ++lastId;
      return new Promise<Reply>((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`No reply to ${name} within ${timeoutMs} ms.`)), timeoutMs);
        waiting.set(id, (value) => {
          clearTimeout(timer);
          resolve(value as Reply);
        });
        send({ request: name, id });
      }).finally(() => waiting.delete(id));
    },
  };
}
