// Measures what a verification costs with one serving process and with several, server and Redis; not how many requests
// per second several reach, which a machine that also makes the load cannot show.
import { generator, generatorNote, openLoad } from './support/load.mjs';
import { numbersOf, readOptions } from './support/options.mjs';
import { costOf, run } from './support/processes.mjs';
import { median, number, progress, progressDone, report, table } from './support/results.mjs';
import { targets } from './targets/index.mjs';

const help = `npm run bench -- workers [options]
  --rounds n     interleaved rounds, 5 if left out
  --seconds s    for each run, 5 if left out
  --quick        small numbers, to see that it works
  --json         the result as JSON on standard output`;
const options = readOptions(help, {
  rounds: { type: 'string' },
  seconds: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [rounds] = numbersOf(options.rounds, [options.quick ? 1 : 5], help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 1 : 5], help);
const connections = 64;

async function measure() {
  const servers = [];
  for (const count of [1, 2]) {
    const target = await targets.tollgate.open(options.quick ? 100 : 1000, { WORKERS: String(count) });
    await target.check();
    const load = openLoad(target);
    await load({ connections, seconds: options.quick ? 1 : 3 });
    servers.push({ count, target, load, runs: [] });
  }
  for (let round = 1; round <= rounds; round++) {
    for (const { count, target, load, runs } of servers) {
      progress(`round ${round} of ${rounds}, WORKERS=${count}`);
      const result = await costOf(target, () => load({ connections, seconds }));
      if (result.refused + result.broken > 0) throw new Error(`${result.refused + result.broken} requests failed`);
      const { requests, serverCpu, redisCpu } = result;
      runs.push({
        perSecond: requests / result.seconds,
        server: (serverCpu / requests) * 1e6,
        redis: (redisCpu / requests) * 1e6,
        both: ((serverCpu + redisCpu) / requests) * 1e6,
      });
    }
  }
  progressDone();

  const of = (runs, figure) => number(median(runs.map((each) => each[figure])));
  const rows = servers.map(({ count, runs }) => [
    count,
    ...['server', 'redis', 'both', 'perSecond'].map((figure) => of(runs, figure)),
  ]);
  const [one, two] = servers;
  const workersCost = median(two.runs.map(({ both }, round) => both / one.runs[round].both));
  const markdown = [
    table(['WORKERS', 'server CPU µs', 'Redis CPU µs', 'both', 'requests/s'], rows),
    `Per request, keys.verifyKey at ${connections} connections; medians of ${rounds} interleaved rounds of ${seconds} s. ` +
      `Two cost ${number(workersCost)} of what one does. Load: ${generator}${generatorNote}.`,
  ].join('\n\n');
  const raw = servers.map(({ count, runs }) => ({ count, runs }));
  const reached = options.quick || rounds < 3 ? {} : { workersCost };
  report(
    { bench: 'workers', title: 'Several processes', markdown, reached, raw },
    { json: options.json, kept: !options.quick && rounds >= 3 },
  );
}

await run(measure);
