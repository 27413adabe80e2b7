// Measures whole requests over loopback HTTP, with server and Redis on this machine, and compares them with peers that
// do the same work. It does not measure networks, TLS, or more than one server process. Rounds are interleaved, so that
// a disturbance of the machine affects all targets.
import { setTimeout as delay } from 'node:timers/promises';
import { generator, generatorNote, merged, openLoad, percentile } from './support/load.mjs';
import { numbersOf, readOptions, refuse } from './support/options.mjs';
import { histogramSvg } from './support/picture.mjs';
import { costOf, run } from './support/processes.mjs';
import { median, micros, number, progress, progressDone, report, table, writePicture } from './support/results.mjs';
import { targets } from './targets/index.mjs';

const help = `npm run bench -- [options]      compares Tollgate with peers and with bare servers; takes about eleven minutes
  --only a,b           of ${Object.keys(targets).join(', ')}
  --rounds n           number of interleaved rounds, 5 by default; figures are medians of the rounds
  --seconds s          seconds of a run at 64 connections, else at the first of --connections, 3 by default; other runs take 40 %
  --connections a,b    numbers of connections, 1,4,8,64 by default
  --json               print the result, with every run, as JSON on standard output
  --quick              run for a few seconds, to see that the bench works; its figures are meaningless
ROOT_KEY=root_… npm run bench -- --against URL --key KEY     loads a running installation; see its --help
npm run bench -- memory | since | growth | parts | workers | far | endurance | gateways     other benches; see their --help`;

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
const [seconds] = numbersOf(options.seconds, [options.quick ? 1 : 3], help);
const levels = numbersOf(options.connections, options.quick ? [16] : [1, 4, 8, 64], help);
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
  // The text of the metrics is up to a second old.
  if (names.some((name) => targets[name].without)) await delay(1100);
  for (const name of names) if (targets[name].without) open[name].local = await localShareOf(open[name]);
  progressDone();
  reportAll(open);
}

/** The share of all verifications and limit checks that a server decided by leases. */
async function localShareOf({ url }) {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const sumOf = (name) =>
    [...metrics.matchAll(new RegExp(`^tollgate_${name}(?:{.*})? (.*)$`, 'gm'))].reduce(
      (sum, [, n]) => sum + Number(n),
      0,
    );
  return sumOf('local_decisions_total') / (sumOf('verifications_total') + sumOf('limit_checks_total'));
}

const figuresOf = ({ requests, seconds, latency, serverCpu, redisCpu, othersCores }) => ({
  perSecond: requests / seconds,
  p50: percentile(latency, 0.5),
  p99: percentile(latency, 0.99),
  serverMicros: (serverCpu / requests) * 1e6,
  redisMicros: (redisCpu / requests) * 1e6,
  cpuMicros: ((serverCpu + redisCpu) / requests) * 1e6,
  othersCores,
  latency,
});

const localText = ({ local }) => (local === undefined ? '' : `; ${number(local * 100)} % were decided locally`);

/** The runs of targets, and figures of them: `of` is the median of the rounds. */
function figuresIn(open) {
  const runsOf = (name, level = main) => open[name]?.runs.get(level) ?? [];
  const of = (name, figure, level = main) => median(runsOf(name, level).map((run) => run[figure]));
  /**
   * The median of the rounds' ratios, not the ratio of the medians: a disturbed round slows both targets and cancels
   * out.
   */
  const ratio = (a, b, figure = 'perSecond', level = main) =>
    median(runsOf(a, level).map((run, round) => run[figure] / (runsOf(b, level)[round]?.[figure] ?? Number.NaN)));
  return { runsOf, of, ratio };
}

function rowsOf(open, { runsOf, of, ratio }) {
  return names.flatMap((name) =>
    levels.map((level) => {
      const all = runsOf(name, level).map(({ perSecond }) => perSecond);
      const { without } = targets[name];
      return [
        name,
        level,
        number(of(name, 'perSecond', level)),
        `${number(Math.min(...all))} to ${number(Math.max(...all))}`,
        micros(of(name, 'p50', level)),
        micros(of(name, 'p99', level)),
        number(of(name, 'serverMicros', level)),
        open[name].redis ? number(of(name, 'redisMicros', level)) : '–',
        number(ratio(name, 'bare', 'perSecond', level)),
        without ? number(ratio(name, without, 'perSecond', level)) : '–',
      ];
    }),
  );
}

function textOf(open, figures) {
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
    '/ without leases',
  ];
  const runs = names.flatMap((name) => levels.flatMap((level) => figures.runsOf(name, level)));
  const others = Math.max(...runs.map(({ othersCores }) => othersCores));
  return [
    table(head, rowsOf(open, figures)),
    `Load: ${generator}${generatorNote}. Medians of ${rounds} interleaved rounds of ${seconds} s at ${main} connections, ` +
      `${otherSeconds} s at others; \`/ bare\` is requests/s relative to \`bare\`, the median of the rounds' ratios, and ` +
      '`/ without leases` relative to the target that does the same without them. ' +
      `CPU: processor time per request. Other processes took at most ${number(others)} of a core during a run` +
      `${others > 0.15 ? ': **disturbed**' : ''}.`,
    names.map((name) => `- \`${name}\`: ${targets[name].does}${localText(open[name])}`).join('\n'),
  ];
}

/**
 * What the p50 at one connection is above that of `bare`, relative to that of another target; the median of the rounds.
 */
function ratioAboveBare(runsOf, name, base) {
  const p50sOf = (each) => runsOf(each, 1).map(({ p50 }) => p50);
  const [p50s, others, bare] = [name, base, 'bare'].map(p50sOf);
  return median(p50s.map((p50, round) => (p50 - bare[round]) / (others[round] - bare[round])));
}

const goalsOf = ({ of, ratio, runsOf }) => ({
  tollgateToBare: ratio('tollgate', 'bare'),
  tollgateToFastify: ratio('tollgate', 'fastify'),
  tollgateToExpress: ratio('tollgate', 'express-rlf'),
  redisMicros: of('tollgate', 'redisMicros'),
  p99ToBare: ratio('tollgate', 'bare', 'p99'),
  heavyToTollgate: ratio('tollgate-heavy', 'tollgate'),
  tenantsRedis: ratio('tollgate-tenants', 'tollgate', 'redisMicros'),
  tenantsServer: ratio('tollgate-tenants', 'tollgate', 'serverMicros'),
  leasesToBareAtOne: ratio('tollgate-leases', 'bare', 'perSecond', 1),
  leasesToBare: ratio('tollgate-leases', 'bare'),
  leasesOf1000ToBare: ratio('tollgate-1000', 'bare'),
  leasesCostAtOne: ratio('tollgate-leases', 'tollgate-hot', 'p50', 1),
  leasesAboveBareAtOne: ratioAboveBare(runsOf, 'tollgate-leases', 'tollgate-hot'),
  leasesCpuAtOne: ratio('tollgate-leases', 'tollgate-hot', 'cpuMicros', 1),
  leasesRedisMicros: of('tollgate-leases', 'redisMicros'),
  tagsCpu: ratio('tollgate-tags-leases', 'tollgate-tags', 'cpuMicros'),
  leasesFarP50AtOne: ratio('tollgate-leases-far', 'bare', 'p50', 1),
  leasesFarP50: ratio('tollgate-leases-far', 'bare', 'p50'),
});

function pictureOf(name, { runsOf, of }, kept) {
  const latency = merged(runsOf(name).map((each) => each.latency));
  const subtitle = `${main} connections, ${number(of(name, 'perSecond'))} requests/s, ${generator}`;
  const file = writePicture(name, histogramSvg({ title: 'Latency of keys.verifyKey', subtitle, latency }), { kept });
  return `![Latency of ${name} at ${main} connections](${file})`;
}

function reportAll(open) {
  const figures = figuresIn(open);
  const kept = !options.quick && !options.only && !options.connections && rounds >= 3 && seconds >= 3;
  const markdown = textOf(open, figures);
  if (open.tollgate) markdown.push(pictureOf('tollgate', figures, kept));
  const runsAt = (name, level) => figures.runsOf(name, level).map(({ latency: _latency, ...rest }) => rest);
  const rawOf = (name) => levels.map((level) => ({ connections: level, runs: runsAt(name, level) }));
  report(
    {
      bench: 'compare',
      title: 'Against peers and bare servers',
      markdown: markdown.join('\n\n'),
      reached: main === 64 && !options.quick ? goalsOf(figures) : {},
      raw: Object.fromEntries(names.map((name) => [name, rawOf(name)])),
      packages: ['ioredis', 'fastify', 'express', 'rate-limiter-flexible'],
    },
    { json: options.json, kept },
  );
}

await run(compare);
