// Prints decisions as they happen.

import type { InputOf, OutputOf } from './client.ts';
import { apiOption, type FollowRow, given, text, wantedOf } from './commandRow.ts';
import { timeText } from './table.ts';

type Event = OutputOf<'analytics.tail'>;
type Outcome = InputOf<'analytics.tail'>['outcome'];

const outcomeWidth = 'INSUFFICIENT_PERMISSIONS'.length;

export const tailRow: FollowRow = {
  words: 'tail',
  about:
    'Print decisions of all servers as they happen, until it is interrupted. Under load one in n is printed, with n. With --json, one object per line.',
  options: [
    apiOption,
    ['--key <keyId>', 'only of this key'],
    ['--owner <externalId>', 'only of this identity'],
    ['--outcome <outcome>', 'only with this outcome, such as RATE_LIMITED'],
    ['--namespace <namespace>', 'only limit checks of this namespace'],
    ['--limit <n>', 'end after this many'],
  ],
  async follow(listen, { api, key, owner, outcome, namespace, limit }, print) {
    let left = text(limit) === undefined ? Number.POSITIVE_INFINITY : wantedOf({ limit });
    const heard = await listen(
      given({
        apiId: text(api),
        keyId: text(key),
        externalId: text(owner),
        outcome: text(outcome)?.toUpperCase() as Outcome,
        namespace: text(namespace),
      }),
    );
    try {
      for await (const { event, data } of eventsOf(heard.text)) {
        if ('reason' in data) throw new Error(`The server ended the tail: ${data.reason}.`);
        await print({ lines: [lineOf(data)], json: { event, ...data } });
        if (--left === 0) return undefined;
      }
    } finally {
      heard.close();
    }
    throw new Error('The server closed the connection.');
  },
};

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

/** Time, outcome, whose decision it is, and what refused. */
function lineOf(data: Exclude<Event, { reason: string }>): string {
  const isCheck = 'passed' in data;
  const outcome = isCheck ? (data.passed ? 'PASSED' : 'BLOCKED') : data.outcome;
  const details = isCheck
    ? [data.namespace, data.identifier, `${data.remaining} of ${data.limit} left`, `cost ${data.cost}`]
    : [data.keyId, data.name, data.externalId, data.ratelimit && `limit ${data.ratelimit}`, data.tags?.join(', ')];
  const measured = [
    `${data.latencyMs} ms`,
    data.source === 'lease' && 'lease',
    data.sample > 1 && `1 in ${data.sample}`,
  ];
  const cells = [timeText(data.time), outcome.padEnd(outcomeWidth), ...details, ...measured];
  return cells.filter(Boolean).join('  ');
}
