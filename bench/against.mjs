// Sends keys.verifyKey to a running installation at full rate and measures the latency, which includes the network. It
// does not measure processor time.
import { generator, generatorNote, openLoad, percentile } from './support/load.mjs';
import { numbersOf, readOptions, refuse } from './support/options.mjs';
import { histogramSvg } from './support/picture.mjs';
import { run } from './support/processes.mjs';
import { micros, number, progress, progressDone, report, table, writePicture } from './support/results.mjs';
import { post } from './targets/index.mjs';

const help = `ROOT_KEY=root_… npm run bench -- --against URL --key KEY [options]
  ROOT_KEY             a root key that may verify it, as every user of the machine can read arguments
  --against URL        such as http://127.0.0.1:8080
  --key KEY            the key to verify and charge with every request; repeat it for several keys
  --seconds s          duration, 10 by default
  --connections n      64 by default
  --json               print the result as JSON on standard output`;

const options = readOptions(help, {
  against: { type: 'string' },
  key: { type: 'string', multiple: true },
  seconds: { type: 'string' },
  connections: { type: 'string' },
  json: { type: 'boolean' },
});
const rootKey = process.env.ROOT_KEY;
if (!options.against || !options.key || !rootKey) refuse('--against, --key and ROOT_KEY are required.', help);
if (!URL.canParse(options.against)) refuse(`${options.against} is not a URL.`, help);
const [seconds] = numbersOf(options.seconds, [10], help);
const [connections] = numbersOf(options.connections, [64], help);

async function load() {
  const url = new URL(options.against).origin;
  const target = { url, path: '/v2/keys.verifyKey', rootKey };
  const bodies = options.key.map((key) => JSON.stringify({ key }));
  for (const [index, body] of bodies.entries()) {
    const { status, data } = await post(target, body);
    if (status !== 200)
      throw new Error(`${url} responded with status ${status}. Check that the root key belongs to this installation.`);
    if (data.code !== 'VALID') console.error(`Key ${index + 1} is ${data.code}: this measures refusals.`);
  }

  let second = 0;
  const onSecond = (requests) => {
    second++;
    if (second >= seconds) return;
    const text = `${second} of ${seconds} s, ${connections} connections: ${number(requests)} requests/s`;
    if (process.stderr.isTTY) progress(text);
    else console.error(text);
  };
  const result = await openLoad({ ...target, bodies })({ connections, seconds, onSecond });
  progressDone();
  const after = await post(target, bodies[0]);

  const { latency, requests, refused, broken } = result;
  const perSecond = requests / result.seconds;
  const at = (share) => micros(percentile(latency, share));
  const figures = { requests, perSecond, refused, broken };
  const head = ['connections', 'requests/s', 'p50', 'p90', 'p99', 'p99.9', 'max', 'not 200', 'failed'];
  const row = [connections, number(perSecond), at(0.5), at(0.9), at(0.99), at(0.999), at(1), refused, broken];
  const subtitle = `${url}, ${connections} connections, ${number(perSecond)} requests/s, ${generator}`;
  const picture = writePicture('against', histogramSvg({ title: 'Latency of keys.verifyKey', subtitle, latency }), {
    kept: false,
  });
  const markdown = [
    table(head, [row]),
    `${number(requests)} requests to ${url} in ${number(result.seconds)} s. Load: ${generator}${generatorNote}. The code of the last response was ${after.data?.code}.`,
    `![Latency](${picture.split('/').at(-1)})`,
  ].join('\n\n');
  report(
    { bench: 'against', title: 'A running installation', markdown, raw: figures },
    { json: options.json, kept: false },
  );
}

await run(load);
