// Prints decisions as they happen.

import type { InputOf, OutputOf } from './client.ts';
import { apiOption, limitOption, ownerOption, runs, upperCase } from './commandRow.ts';
import { timeText } from './table.ts';

type Event = OutputOf<'analytics.tail'>;

const outcomeWidth = 'INSUFFICIENT_PERMISSIONS'.length;

export const tailRow = runs<InputOf<'analytics.tail'> & { limit?: number }>({
  words: 'tail',
  about:
    'Print decisions of all servers as they happen, until it is interrupted. Under load one in n is printed, with n. With --json, one object per line.',
  sets: {
    apiId: apiOption,
    keyId: ['--key <keyId>', 'only of this key'],
    externalId: ownerOption,
    outcome: ['--outcome <outcome>', 'only with this outcome, such as RATE_LIMITED', upperCase],
    namespace: ['--namespace <namespace>', 'only limit checks of this namespace'],
    limit: [limitOption[0], 'end after this many', limitOption[2]],
  },
  lasts: true,
  async run(_call, { limit: left = Number.POSITIVE_INFINITY, ...filter }, { output }) {
    const heard = await output.listen(filter);
    try {
      for await (const { event, data } of eventsOf(heard.text)) {
        if ('reason' in data) throw new Error(`The server ended the tail: ${data.reason}.`);
        await output.print({ lines: [lineOf(data)], json: { event, ...data } });
        left -= 1;
        if (left === 0) return undefined;
      }
    } finally {
      heard.close();
    }
    throw new Error('The server closed the connection.');
  },
});

/** Server-sent events as Tollgate writes them: `event` and one line of `data`. Other lines are heartbeats or empty. */
async function* eventsOf(chunks: AsyncIterable<string>): AsyncGenerator<{ event: string; data: Event }> {
  let [event, rest] = ['', ''];
  for await (const chunk of chunks) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop()!;
    for (const line of lines) {
      if (line.startsWith('event: ')) event = line.slice('event: '.length);
      if (line.startsWith('data: ')) yield { event, data: JSON.parse(line.slice('data: '.length)) };
    }
  }
}

/** Time, outcome, owner of the decision, and the reason of a refusal. */
function lineOf(data: Exclude<Event, { reason: string }>): string {
  const isCheck = 'passed' in data;
  const outcome = isCheck ? (data.passed ? 'PASSED' : 'BLOCKED') : data.outcome;
  const details = isCheck
    ? [data.namespace, data.identifier, `${data.remaining} of ${data.limit} left`, `cost ${data.cost}`]
    : [
        data.keyId,
        data.name,
        data.externalId,
        data.planId,
        data.ratelimit && `limit ${data.ratelimit}`,
        data.tags?.join(', '),
      ];
  const measured = [
    `${data.latencyMs} ms`,
    data.source === 'lease' && 'lease',
    data.sample > 1 && `1 in ${data.sample}`,
  ];
  const cells = [timeText(data.time), outcome.padEnd(outcomeWidth), ...details, ...measured];
  return cells.filter(Boolean).join('  ');
}
