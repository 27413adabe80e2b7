// Questions and answers between the first process and its workers, over the channel that Node opens between them.

/** The end of a channel: a ChildProcess, or the process itself where it is one. */
export interface ChannelEnd {
  send?(message: object, callback: (error: Error | null) => void): boolean;
  on(event: 'message', listener: (message: unknown) => void): unknown;
}

type Message = { ask: string; id: number } | { answers: number; value: unknown };

/**
 * Opens this end; `answers` says what may be asked here. `ask` resolves to the other's answer, and rejects when there is
 * none within `withinMs`.
 */
export function openChannel(end: ChannelEnd, answers: Record<string, () => Promise<unknown>>) {
  const waiting = new Map<number, (value: unknown) => void>();
  let lastId = 0;
  // What cannot be sent is not answered, which the asker notices.
  const send = (message: Message) => end.send?.(message, () => {});

  end.on('message', (message) => {
    if (typeof message !== 'object' || message === null) return;
    if ('ask' in message) {
      const { ask, id } = message as Extract<Message, { ask: string }>;
      answers[ask]?.().then(
        (value) => send({ answers: id, value }),
        () => {},
      );
    } else if ('answers' in message) {
      const { answers: id, value } = message as Extract<Message, { answers: number }>;
      waiting.get(id)?.(value);
    }
  });

  return {
    ask<Answer>(question: string, withinMs: number): Promise<Answer> {
      const id = ++lastId;
      return new Promise<Answer>((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`No answer to ${question} within ${withinMs} ms.`)), withinMs);
        waiting.set(id, (value) => {
          clearTimeout(timer);
          resolve(value as Answer);
        });
        send({ ask: question, id });
      }).finally(() => waiting.delete(id));
    },
  };
}
