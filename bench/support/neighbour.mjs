// What a query costs others: verifications of another workspace meanwhile, and the longest script.
import { setTimeout as delay } from 'node:timers/promises';
import { number } from './results.mjs';

/** Returns a function that resolves to the data of a response. */
export const asking = (url, rootKey) => async (operation, input) => {
  const response = await fetch(`${url}/v2/${operation}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(input),
  });
  const { data, error } = await response.json();
  if (response.status !== 200) throw new Error(`${operation}: ${error.detail}`);
  return data;
};

/** Verifies a key of another workspace 200 times a second for some seconds. Resolves to how long each took, in ms. */
export function neighbour(url, rootKey) {
  const ask = asking(url, rootKey);
  let key;
  return async (seconds, isOver = () => false) => {
    if (!key) {
      const { apiId } = await ask('apis.createApi', { name: 'other' });
      ({ key } = await ask('keys.createKey', { apiId }));
    }
    const took = [];
    const sent = [];
    const begunAt = performance.now();
    for (let number = 0; performance.now() - begunAt < seconds * 1000 && !isOver(); number++) {
      await delay(Math.max(0, begunAt + number * 5 - performance.now()));
      const at = performance.now();
      // One that fails took as long as its caller waited.
      const end = () => took.push(performance.now() - at);
      sent.push(ask('keys.verifyKey', { key }).then(end, end));
    }
    await Promise.all(sent);
    return took;
  };
}

/** The longest script since the last reset, in ms. */
export async function slowestScript({ client }) {
  const entries = await client.slowlog('GET', 10_000);
  const scripts = entries.filter(([, , , [name]]) => /^fcall/i.test(name));
  return Math.max(0, ...scripts.map(([, , micros]) => micros)) / 1000;
}

export const percentile = (values, percent) => {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * percent) / 100))] ?? Number.NaN;
};
/** p50, p99 and the longest. */
export const quantiles = (times) => [50, 99, 100].map((percent) => number(percentile(times, percent))).join(', ');
