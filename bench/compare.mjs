// Measures whole requests over loopback HTTP, server and Redis on this machine, against peers doing the same work; not
// networks, TLS, or more than one server process. Rounds are interleaved, so that what disturbs the machine disturbs all.
import { generator, generatorNote, merged, openLoad, percentile } from './support/load.mjs';
import { numbersOf, readOptions, refuse } from './support/options.mjs';
import { histogramSvg } from './support/picture.mjs';
import { costOf, run } from './support/processes.mjs';
import { median, micros, number, progress, progressDone, report, table, writePicture } from './support/results.mjs';
import { targets } from './targets/index.mjs';

const help = `npm run bench -- [options]      compares Tollgate with peers and bare limits; under ten minutes
  --only a,b           of ${Object.keys(targets).join(', ')}
  --rounds n           interleaved rounds, 5 if left out; figures are medians
  --seconds s          for each run at 64 connections, 5 if left out; others take two fifths
  --connections a,b    1,16,64,256 if left out
  --json               the result as JSON on standard output
  --quick              a few seconds, to see that it works; its figures mean nothing
npm run bench -- --against URL --key KEY --root-key ROOT_KEY     loads a running installation; --help for more
npm run bench -- memory | growth | parts | workers | endurance     other questions; --help for their options`;

const options = readOptions(help, {
  only: { type: 'string' },
  rounds: { type: 'string' },
  seconds: { type: 'string' },
  connections: { type: 'string' },
  json: { type: 'boolean' },
  quick: { type: 'boolean' },
});
const names = options.only?.split(',') ?? Object.keys(targets);
const unknown = names.filter((name) => !(name in targets));
if (unknown.length > 0) refuse(`there is no target ${unknown.join(', ')}.`, help);
const [rounds] = numbersOf(options.rounds, [options.quick ? 1 : 5], help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 1 : 5], help);
const levels = numbersOf(options.connections, options.quick ? [16] : [1, 16, 64, 256], help);
const main = levels.includes(64) ? 64 : levels[0];
// wrk counts in whole seconds.
const secondsAt = (connections) => (connections === main ? seconds : Math.max(1, Math.round(seconds * 0.4)));

async function compare() {
  const open = {};
  for (const name of names) {
    progress(`starting ${name}`);
    const target = await targets[name].open(options.quick ? 100 : 1000);
    await target.check();
    open[name] = { ...target, load: openLoad(target), runs: new Map(levels.map((level) => [level, []])) };
  }
  for (const name of options.quick ? [] : names) {
    progress(`warming up ${name}`);
    await open[name].load({ connections: main, seconds: 2 });
  }
  for (let round = 1; round <= rounds; round++) {
    for (const connections of levels) {
      for (const name of names) {
        progress(`round ${round} of ${rounds}, ${connections} connections, ${name}`);
        const result = await costOf(open[name], () =>
          open[name].load({ connections, seconds: secondsAt(connections) }),
        );
        if (result.refused + result.broken > 0) {
          throw new Error(`${name}: ${result.refused} requests refused and ${result.broken} broken`);
        }
        open[name].runs.get(connections).push(figuresOf(result));
      }
    }
  }
  // What was right before the load is right after it.
  for (const name of names) await open[name].check();
  progressDone();
  tell(open);
}

const figuresOf = ({ requests, seconds, latency, serverCpu, redisCpu, othersCores }) => ({
  perSecond: requests / seconds,
  p50: percentile(latency, 0.5),
  p99: percentile(latency, 0.99),
  serverPer1000: (serverCpu / requests) * 1000,
  redisPer1000: (redisCpu / requests) * 1000,
  othersCores,
  latency,
});

function tell(open) {
  const runsOf = (name, level = main) => open[name]?.runs.get(level) ?? [];
  const of = (runs, figure) => median(runs.map((run) => run[figure]));
  /** The median of the rounds' ratios: what slows a whole round slows both. */
  const ratio = (a, b, figure = 'perSecond', level = main) =>
    median(runsOf(a, level).map((run, round) => run[figure] / (runsOf(b, level)[round]?.[figure] ?? Number.NaN)));

  const rows = [];
  for (const name of names) {
    for (const level of levels) {
      const runs = runsOf(name, level);
      const all = runs.map(({ perSecond }) => perSecond);
      rows.push([
        name,
        level,
        number(of(runs, 'perSecond')),
        `${number(Math.min(...all))} to ${number(Math.max(...all))}`,
        micros(of(runs, 'p50')),
        micros(of(runs, 'p99')),
        number(of(runs, 'serverPer1000')),
        open[name].redis ? number(of(runs, 'redisPer1000')) : '–',
        number(ratio(name, 'bare', 'perSecond', level)),
      ]);
    }
  }
  const head = ['target', 'connections', 'requests/s', 'range', 'p50', 'p99', 'server CPU s', 'Redis CPU s', 'to bare'];
  const others = Math.max(...names.flatMap((name) => levels.flatMap((l) => runsOf(name, l).map((r) => r.othersCores))));
  const markdown = [
    table(head, rows),
    `Load: ${generator}${generatorNote}. Medians of ${rounds} interleaved rounds of ${seconds} s at ${main} connections, ` +
      `${secondsAt(Number.NaN)} s at others; \`to bare\` is the median of the rounds' ratios. CPU: seconds per 1000 requests. ` +
      `Other processes took at most ${number(others)} of a core during a run${others > 0.15 ? ': **disturbed**' : ''}.`,
    names.map((name) => `- \`${name}\`: ${targets[name].does}`).join('\n'),
  ];
  const goals = {
    tollgateToBare: ratio('tollgate', 'bare'),
    tollgateToFastify: ratio('tollgate', 'fastify'),
    tollgateToExpress: ratio('tollgate', 'express-rlf'),
    redisMicros: of(runsOf('tollgate'), 'redisPer1000') * 1000,
    p99ToBare: ratio('tollgate', 'bare', 'p99'),
    heavyToTollgate: ratio('tollgate-heavy', 'tollgate'),
  };

  const kept = !options.quick && !options.only && !options.connections && rounds >= 3 && seconds >= 3;
  if (open.tollgate) {
    const latency = merged(runsOf('tollgate').map((each) => each.latency));
    const subtitle = `${main} connections, ${number(of(runsOf('tollgate'), 'perSecond'))} requests/s, ${generator}`;
    const file = writePicture('tollgate', histogramSvg({ title: 'keys.verifyKey, latency', subtitle, latency }), {
      kept,
    });
    markdown.push(`![Latency of tollgate at ${main} connections](${file})`);
  }
  const raw = Object.fromEntries(
    names.map((name) => [
      name,
      levels.map((level) => ({
        connections: level,
        runs: runsOf(name, level).map(({ latency: _latency, ...figures }) => figures),
      })),
    ]),
  );
  const packages = ['ioredis', 'fastify', 'express', 'rate-limiter-flexible'];
  report(
    {
      bench: 'compare',
      title: 'Against peers and bare limits',
      markdown: markdown.join('\n\n'),
      reached: main === 64 && !options.quick ? goals : {},
      raw,
      packages,
    },
    { json: options.json, kept },
  );
}

await run(compare);
