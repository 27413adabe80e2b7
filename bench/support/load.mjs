// The load: many connections with one request in flight each, by wrk if it is installed, else by autocannon.
import { spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { temporaryDir } from './processes.mjs';

/** `wrk 4.1.0` and the like; undefined when it is not installed. */
const wrkVersion = /wrk (\S+)/.exec(spawnSync('wrk', ['-v'], { encoding: 'utf8' }).stdout ?? '')?.[1];
const autocannon = wrkVersion ? undefined : (await import('autocannon')).default;

export const generator = wrkVersion ? `wrk ${wrkVersion.replace(/^debian\//, '')}` : 'autocannon';
export const generatorNote = wrkVersion
  ? ''
  : ' (on a small machine it is the bottleneck itself: install wrk for meaningful figures)';

/**
 * A load of random bodies. `bodies` is an array of request bodies, and `rootKeys` the root key of each if they differ; or
 * it is `{before, first, count, after, skewed}` for `count` bodies that differ only in a number, from `first` on. With
 * `skewed` the n-th most frequent body has 1/n of the requests of the first (Zipf's law); frequent ones are scattered
 * over the numbers. Returns the function that runs the load.
 */
export const openLoad = (target) => (wrkVersion ? openWrk(target) : openAutocannon(target));

function openWrk({ url, path, rootKey, rootKeys = [], bodies }) {
  const env = { ...process.env, BENCH_PATH: path, BENCH_ROOT_KEY: rootKey };
  if (Array.isArray(bodies)) {
    env.BENCH_BODIES = join(temporaryDir(), `${randomUUID()}.txt`);
    const lines = bodies.map((body, index) => `${rootKeys[index] ?? rootKey} ${body}\n`);
    writeFileSync(env.BENCH_BODIES, lines.join(''));
  } else {
    const { before, first, count, after, skewed } = bodies;
    Object.assign(env, { BENCH_NUMBERED: before, BENCH_FIRST: first, BENCH_COUNT: count, BENCH_AFTER: after });
    if (skewed) env.BENCH_SKEWED = '1';
  }
  const script = fileURLToPath(new URL('wrk.lua', import.meta.url));

  return async ({ connections, seconds, onSecond }) => {
    const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '-s', script, url];
    const narrating = onSecond ? { ...env, BENCH_NARRATE: '1' } : env;
    const child = spawn('wrk', args, { env: narrating, stdio: ['ignore', 'pipe', 'pipe'] });
    const result = { requests: 0, seconds: 0, refused: 0, broken: 0, latency: [] };
    createInterface({ input: child.stdout }).on('line', (line) => {
      const [word, value, count] = line.split(' ');
      if (word === 'latency') result.latency.push([Number(value), Number(count)]);
      else if (word in result) result[word] = Number(value);
    });
    let complaint = '';
    createInterface({ input: child.stderr }).on('line', (line) => {
      if (/^\d+$/.test(line)) onSecond?.(Number(line));
      else complaint += `${line}\n`;
    });
    const [code] = await once(child, 'close');
    if (code !== 0 || result.requests === 0) throw new Error(`wrk failed against ${url}. ${complaint}`);
    return result;
  };
}

function openAutocannon({ url, path, rootKey, rootKeys = [], bodies }) {
  const headersOf = (root) => ({ authorization: `Bearer ${root}`, 'content-type': 'application/json' });
  const random = (count) => Math.floor(Math.random() * count);
  const randomIndex = () =>
    bodies.skewed ? (Math.floor(bodies.count ** Math.random()) * scatter) % bodies.count : random(bodies.count);
  /** Gives the client its next request. */
  const setRandom = (client) => {
    if (!Array.isArray(bodies)) return client.setBody(`${bodies.before}${bodies.first + randomIndex()}${bodies.after}`);
    const index = random(bodies.length);
    if (rootKeys.length > 0) client.setHeaders(headersOf(rootKeys[index]));
    client.setBody(bodies[index]);
  };

  return ({ connections, seconds, onSecond }) =>
    new Promise((resolve, reject) => {
      const counts = new Map();
      const options = {
        url: url + path,
        method: 'POST',
        headers: headersOf(rootKey),
        connections,
        duration: seconds,
        setupClient(client) {
          setRandom(client);
          client.on('response', () => setRandom(client));
        },
      };
      const running = autocannon(options, (error, { requests, duration, non2xx, errors, timeouts }) => {
        if (error) return reject(error);
        const latency = [...counts].sort(([a], [b]) => a - b);
        resolve({ requests: requests.total, seconds: duration, refused: non2xx, broken: errors + timeouts, latency });
      });
      running.on('response', (_client, _status, _bytes, milliseconds) => {
        const micros = rounded(milliseconds * 1000);
        counts.set(micros, (counts.get(micros) ?? 0) + 1);
      });
      running.on('tick', ({ counter }) => onSecond?.(counter));
    });
}

/** A prime that scatters frequent numbers. The same as in wrk.lua. */
const scatter = 7919;

/** Three significant digits, which bounds the number of different latencies. */
const rounded = (micros) => Number(micros.toPrecision(3));

/**
 * The latency in microseconds that `share` of the requests did not exceed. `latency`: [microseconds, count] in order.
 */
export function percentile(latency, share) {
  const wanted = share * latency.reduce((sum, [, count]) => sum + count, 0);
  let seen = 0;
  for (const [micros, count] of latency) {
    seen += count;
    if (seen >= wanted) return micros;
  }
  return latency.at(-1)?.[0] ?? Number.NaN;
}

/** The latencies of several runs in one list. */
export function merged(runs) {
  const counts = new Map();
  for (const [micros, count] of runs.flat()) counts.set(micros, (counts.get(micros) ?? 0) + count);
  return [...counts].sort(([a], [b]) => a - b);
}
