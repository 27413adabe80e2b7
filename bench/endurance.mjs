// Measures the growth of the server's memory with the number of requests: memory after all requests divided by memory
// after a tenth of them. Does not measure the memory of Redis, or of a server with many keys.
import { generator, openLoad } from './support/load.mjs';
import { numbersOf, readOptions } from './support/options.mjs';
import { residentBytesOf, run, treeOf } from './support/processes.mjs';
import { median, number, progress, progressDone, report, table } from './support/results.mjs';
import { targets } from './targets/index.mjs';

const help = `npm run bench -- endurance [options]
  --requests n   10000000 by default (takes some minutes; Linux only)
  --quick        small numbers, to see that the bench works
  --json         print the result, with every sample, as JSON on standard output`;
const options = readOptions(help, {
  requests: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [wanted] = numbersOf(options.requests, [options.quick ? 30_000 : 10_000_000], help);

async function measure() {
  const target = await targets.tollgate.open(1000);
  await target.check();
  const load = openLoad(target);
  const samples = [];
  for (let sent = 0; sent < wanted; ) {
    // New connections every second, to detect a leak per connection as well.
    sent += (await load({ connections: 64, seconds: 1 })).requests;
    samples.push({ requests: sent, bytes: residentBytesOf(treeOf(target.pid, target.redis.pid)) });
    progress(`${number(sent)} of ${number(wanted)} requests, ${number(samples.at(-1).bytes / 2 ** 20)} MiB`);
  }
  await target.check();
  progressDone();

  /** The median of the nine nearest samples. Single samples vary because of garbage collection. */
  const around = (requests) => {
    const nearest = samples.toSorted((a, b) => Math.abs(a.requests - requests) - Math.abs(b.requests - requests));
    return median(nearest.slice(0, 9).map(({ bytes }) => bytes));
  };
  const [early, late] = [around(wanted / 10), around(wanted)];
  const mebibytes = (bytes) => number(bytes / 2 ** 20);
  const rows = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map((tenths) => {
    const requests = (wanted * tenths) / 10;
    return [number(requests), mebibytes(around(requests)), number(around(requests) / early)];
  });
  const markdown = [
    table(['requests', 'MiB resident', 'relative to the first'], rows),
    `keys.verifyKey of 1000 keys, 64 new connections every second. Load: ${generator}.`,
  ].join('\n\n');
  const kept = !options.quick && wanted >= 10_000_000;
  const reached = kept ? { memoryGrowth: late / early } : {};
  report(
    { bench: 'endurance', title: 'Memory over time', markdown, reached, raw: samples },
    { json: options.json, kept },
  );
}

await run(measure);
