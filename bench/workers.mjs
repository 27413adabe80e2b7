// Measures the processor time of server and Redis per verification, with one serving process and with two. The two get
// the same load, and then twice the load, which is the same for each process. Does not measure the requests per second
// of several processes, as the load generator shares the machine.
import { generator, generatorNote, openLoad } from './support/load.mjs';
import { numbersOf, readOptions } from './support/options.mjs';
import { costOf, run } from './support/processes.mjs';
import { median, number, progress, progressDone, report, table } from './support/results.mjs';
import { targets } from './targets/index.mjs';

const help = `npm run bench -- workers [options]
  --rounds n     number of interleaved rounds, 5 by default
  --seconds s    seconds of each run, 5 by default
  --quick        small numbers, to see that the bench works
  --json         print the result, with every run, as JSON on standard output`;
const options = readOptions(help, {
  rounds: { type: 'string' },
  seconds: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [rounds] = numbersOf(options.rounds, [options.quick ? 1 : 5], help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 1 : 5], help);
const loads = [
  { workers: 1, connections: 64 },
  { workers: 2, connections: 64 },
  { workers: 2, connections: 128 },
];

async function measure() {
  const servers = new Map();
  for (const workers of [1, 2]) {
    const target = await targets.tollgate.open(options.quick ? 100 : 1000, { WORKERS: String(workers) });
    await target.check();
    const load = openLoad(target);
    await load({ connections: 64, seconds: options.quick ? 1 : 3 });
    servers.set(workers, { target, load });
  }
  const runs = loads.map(() => []);
  for (let round = 1; round <= rounds; round++) {
    for (const [index, { workers, connections }] of loads.entries()) {
      progress(`round ${round} of ${rounds}, WORKERS=${workers}`);
      const { target, load } = servers.get(workers);
      const result = await costOf(target, () => load({ connections, seconds }));
      if (result.refused + result.broken > 0) throw new Error(`${result.refused + result.broken} requests failed`);
      const { requests, serverCpu, redisCpu } = result;
      runs[index].push({
        perSecond: requests / result.seconds,
        server: (serverCpu / requests) * 1e6,
        redis: (redisCpu / requests) * 1e6,
        both: ((serverCpu + redisCpu) / requests) * 1e6,
      });
    }
  }
  progressDone();

  const toOne = runs.map((of) => median(of.map(({ both }, round) => both / runs[0][round].both)));
  const rows = loads.map(({ workers, connections }, index) => [
    workers,
    connections,
    ...['server', 'redis', 'both', 'perSecond'].map((figure) => number(median(runs[index].map((run) => run[figure])))),
    number(toOne[index]),
  ]);
  const markdown = [
    table(['WORKERS', 'connections', 'server CPU µs', 'Redis CPU µs', 'both', 'requests/s', 'both / WORKERS=1'], rows),
    `Per request, keys.verifyKey; medians of ${rounds} interleaved rounds of ${seconds} s. Load: ${generator}${generatorNote}.`,
  ].join('\n\n');
  const raw = loads.map((load, index) => ({ ...load, runs: runs[index] }));
  const [, workersCost, workersCostEach] = toOne;
  const reached = options.quick || rounds < 3 ? {} : { workersCost, workersCostEach };
  report(
    { bench: 'workers', title: 'Several processes', markdown, reached, raw },
    { json: options.json, kept: !options.quick && rounds >= 3 },
  );
}

await run(measure);
