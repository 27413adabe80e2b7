// README against what it describes.

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { settings } from '../src/config.ts';
import { operations } from '../src/operations/index.ts';
import { harness } from './support/harness.ts';

const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
const security = readFileSync(new URL('../SECURITY.md', import.meta.url), 'utf8');
const h = harness();

test('the table of settings is that of src/config.ts', () => {
  const rows = settings.map(({ variable, default: fallback, meaning }) => {
    return `| \`${variable}\` | ${fallback === '' ? '' : `\`${fallback}\``} | ${meaning} |`;
  });
  const table = ['| Variable | Default | Meaning |', '|---|---|---|', ...rows].join('\n');
  expect(/<!-- settings -->\n([\s\S]*?)\n<!-- \/settings -->/.exec(readme)?.[1]).toBe(table);
});

test('every service there is has its row', () => {
  const services = new Set(operations.map(({ name }) => name.split('.')[0]));
  for (const service of services) expect(readme).toContain(`| \`${service}\``);
});

test('SECURITY.md names the pages that everybody may see', async () => {
  const [, row] = /^\| everybody who reaches the port \| (.*?) \|/m.exec(security)!;
  const named = [...row!.matchAll(/`(\/[^`]+)`/g)].map((match) => match[1]!);
  expect(named).toEqual([
    '/v2/liveness',
    '/health/live',
    '/health/ready',
    '/openapi.json',
    '/docs',
    '/errors/…',
    '/metrics',
  ]);
  for (const path of named.slice(0, -1)) {
    const { status } = await h.send(path.replace('…', 'key_not_found'), { method: 'GET', authorization: '', body: '' });
    expect(status, path).toBe(200);
  }
});

test("the first minute's calls answer as printed", async () => {
  const calls = [...readme.matchAll(/^toll (\S+) '([^']+)'$/gm)].map((match) => [match[1]!, match[2]!] as const);
  const answers = [...readme.matchAll(/^```json\n(.*)\n```$/gm)].map((match) => JSON.parse(match[1]!));
  expect(calls.map(([name]) => name)).toEqual(['apis.createApi', 'keys.createKey', 'keys.verifyKey']);
  expect(answers).toHaveLength(4);

  // Ids, secrets and times differ from run to run; everything else must not.
  let [apiId, key] = ['', ''];
  const shape = (answer: unknown) =>
    JSON.parse(
      JSON.stringify(answer, (name, value) =>
        typeof value === 'string' && /^(req|api|key|id|rl)_|^pay_/.test(value)
          ? value.split('_')[0]
          : name === 'reset'
            ? 0
            : value,
      ),
    );
  for (const [index, [name, body]] of [...calls, calls[2]!, calls[2]!].entries()) {
    const input = body.replace(/api_\w+/, apiId).replace(/pay_\w+/, key);
    const { json } = await h.send(`/v2/${name}`, { body: input });
    apiId ||= json.data.apiId ?? '';
    key ||= json.data.key ?? '';
    // The second verification is not printed.
    const printed = answers[Math.min(index, 3)];
    if (index !== 3) expect(shape(json), name).toEqual(shape(printed));
  }
});
