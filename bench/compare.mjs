// Measures whole requests over loopback HTTP, with server and Redis on this machine, and compares them with peers that do
// the same work. It does not measure networks, TLS, or more than one server process. Rounds are interleaved, so that a
// disturbance of the machine affects all targets.
import { generator, generatorNote, merged, openLoad, percentile } from './support/load.mjs';
import { numbersOf, readOptions, refuse } from './support/options.mjs';
import { histogramSvg } from './support/picture.mjs';
import { costOf, run } from './support/processes.mjs';
import { median, micros, number, progress, progressDone, report, table, writePicture } from './support/results.mjs';
import { targets } from './targets/index.mjs';

const help = `npm run bench -- [options]      compares Tollgate with peers and with bare servers; takes less than ten minutes
  --only a,b           of ${Object.keys(targets).join(', ')}
  --rounds n           number of interleaved rounds, 5 by default; figures are medians of the rounds
  --seconds s          seconds of a run at 64 connections, else at the first of --connections, 5 by default; other runs take 40 %
  --connections a,b    numbers of connections, 1,16,64,256 by default
  --json               print the result, with every run, as JSON on standard output
  --quick              run for a few seconds, to see that the bench works; its figures are meaningless
npm run bench -- --against URL --key KEY --root-key ROOT_KEY     loads a running installation; see its --help
npm run bench -- memory | growth | parts | workers | endurance     other benches; see their --help`;

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
if (unknown.length > 0) refuse(`unknown target: ${unknown.join(', ')}.`, help);
const [rounds] = numbersOf(options.rounds, [options.quick ? 1 : 5], help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 1 : 5], help);
const levels = numbersOf(options.connections, options.quick ? [16] : [1, 16, 64, 256], help);
const main = levels.includes(64) ? 64 : levels[0];
// wrk takes whole seconds.
const otherSeconds = Math.max(1, Math.round(seconds * 0.4));
const secondsAt = (connections) => (connections === main ? seconds : otherSeconds);

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
  // Responses are checked before the load and after it.
  for (const name of names) await open[name].check();
  progressDone();
  reportAll(open);
}

const figuresOf = ({ requests, seconds, latency, serverCpu, redisCpu, othersCores }) => ({
  perSecond: requests / seconds,
  p50: percentile(latency, 0.5),
  p99: percentile(latency, 0.99),
  serverMicros: (serverCpu / requests) * 1e6,
  redisMicros: (redisCpu / requests) * 1e6,
  othersCores,
  latency,
});

function reportAll(open) {
  const runsOf = (name, level = main) => open[name]?.runs.get(level) ?? [];
  const of = (runs, figure) => median(runs.map((run) => run[figure]));
  /** The median of the rounds' ratios, not the ratio of the medians: a disturbed round slows both targets and cancels out. */
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
        number(of(runs, 'serverMicros')),
        open[name].redis ? number(of(runs, 'redisMicros')) : '–',
        number(ratio(name, 'bare', 'perSecond', level)),
      ]);
    }
  }
  const head = [
    'target',
    'connections',
    'requests/s',
    'range',
    'p50',
    'p99',
    'server CPU µs',
    'Redis CPU µs',
    '/ bare',
  ];
  const others = Math.max(...names.flatMap((name) => levels.flatMap((l) => runsOf(name, l).map((r) => r.othersCores))));
  const markdown = [
    table(head, rows),
    `Load: ${generator}${generatorNote}. Medians of ${rounds} interleaved rounds of ${seconds} s at ${main} connections, ` +
      `${otherSeconds} s at others; \`/ bare\` is requests/s relative to \`bare\`, the median of the rounds' ratios. ` +
      `CPU: processor time per request. Other processes took at most ${number(others)} of a core during a run` +
      `${others > 0.15 ? ': **disturbed**' : ''}.`,
    names.map((name) => `- \`${name}\`: ${targets[name].does}`).join('\n'),
  ];
  const goals = {
    tollgateToBare: ratio('tollgate', 'bare'),
    tollgateToFastify: ratio('tollgate', 'fastify'),
    tollgateToExpress: ratio('tollgate', 'express-rlf'),
    redisMicros: of(runsOf('tollgate'), 'redisMicros'),
    p99ToBare: ratio('tollgate', 'bare', 'p99'),
    heavyToTollgate: ratio('tollgate-heavy', 'tollgate'),
  };

  const kept = !options.quick && !options.only && !options.connections && rounds >= 3 && seconds >= 3;
  if (open.tollgate) {
    const latency = merged(runsOf('tollgate').map((each) => each.latency));
    const subtitle = `${main} connections, ${number(of(runsOf('tollgate'), 'perSecond'))} requests/s, ${generator}`;
    const file = writePicture('tollgate', histogramSvg({ title: 'Latency of keys.verifyKey', subtitle, latency }), {
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
      title: 'Against peers and bare servers',
      markdown: markdown.join('\n\n'),
      reached: main === 64 && !options.quick ? goals : {},
      raw,
      packages,
    },
    { json: options.json, kept },
  );
}

await run(compare);
