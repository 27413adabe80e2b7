// The samples of calls in the API reference are programs. Those that the reference begins with are run against a
// server, as they are pasted. All of each language are run against a server that records what they send.

import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type { OpenApiDocument } from '../../src/http/openapi.ts';
import { firstPaths, sampleOrigin, type samplesOf } from '../../src/http/samples.ts';
import { harness } from '../support/harness.ts';
import { serveStore } from '../support/serving.ts';

// Go compiles its library first.
vi.setConfig({ testTimeout: 180_000 });

const h = harness();
const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
let server: Awaited<ReturnType<typeof serveStore>>;
let document: OpenApiDocument;
let samples: ReturnType<typeof samplesOf>;
/** Paths of `samples`, without aliases. */
let paths: string[];

beforeAll(async () => {
  server = await serveStore(h.store);
  document = (await (await fetch(`${server.url}/openapi.json`)).json()) as OpenApiDocument;
  samples = (await (await fetch(`${server.url}/docs/samples.json`)).json()) as typeof samples;
  paths = Object.keys(samples).filter((path) => !document.paths[path]!.post!['x-alias-of']);
});
afterAll(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

interface Toolchain {
  version: string[];
  extension: string;
  run: (file: string) => [program: string, ...args: string[]];
  /** Makes one program of all. */
  all: (programs: string[]) => string;
}

const toolchains: Record<string, Toolchain> = {
  curl: {
    version: ['curl', '--version'],
    extension: 'sh',
    run: (file) => ['sh', file],
    all: (programs) => programs.join('echo\n'),
  },
  TypeScript: {
    version: ['node', '--version'],
    extension: 'mjs',
    run: (file) => ['node', file],
    all: (programs) => {
      const [imports] = programs[0]!.split('const response');
      return [imports, ...programs.map((program) => `{\n${program.slice(imports!.length)}}\n`)].join('');
    },
  },
  Python: {
    version: ['python3', '--version'],
    extension: 'py',
    run: (file) => ['python3', file],
    all: (programs) => programs.join(''),
  },
  Go: {
    version: ['go', 'version'],
    extension: 'go',
    run: (file) => ['go', 'run', file],
    all: (programs) => {
      const [head] = programs[0]!.split('func main');
      const functions = programs.map((program, index) => `func sample${index}${program.split('func main')[1]}`);
      return [head, ...functions, 'func main() {\n', ...programs.map((_, index) => `sample${index}()\n`), '}\n'].join(
        '',
      );
    },
  },
};

/** Runs a program with these environment variables. The server is in this process, so it does not wait for it. */
async function run({ extension, run }: Toolchain, origin: string, program: string, env: Record<string, string>) {
  const own = mkdtempSync(join(folder, 'run-'));
  const file = join(own, `sample.${extension}`);
  writeFileSync(file, program.replaceAll(sampleOrigin, origin));
  const [command, ...args] = run(file);
  const options = { cwd: own, env: { ...process.env, GOTOOLCHAIN: 'local', ...env }, maxBuffer: 1e8 };
  return (await promisify(execFile)(command, args, options)).stdout;
}

interface Sent {
  method: string | undefined;
  headers: IncomingHttpHeaders;
  body: unknown;
}

/** Calls `act` with the address of a server that responds with `{}`. Returns what was sent, by path. */
async function recorded(act: (origin: string) => Promise<unknown>): Promise<Map<string, Sent>> {
  const sent = new Map<string, Sent>();
  const recorder = createServer(async (request, response) => {
    const { method, headers, url } = request;
    sent.set(url!, { method, headers, body: JSON.parse(await text(request)) });
    response.end('{}');
  });
  await new Promise<void>((done) => recorder.listen(0, '127.0.0.1', done));
  await act(`http://127.0.0.1:${(recorder.address() as AddressInfo).port}`).finally(() => recorder.close());
  return sent;
}

/** Ids and secrets of examples, in place of which programs read variables. */
const masked = (value: unknown) => JSON.parse(JSON.stringify(value).replace(/\w+_Example\d[\w.]*/g, '*'));

function requestOf(path: string): unknown {
  const { content } = document.paths[path]!.post!.requestBody as { content: Record<string, { example: object }> };
  const { example } = content['application/json']!;
  const fields = firstPaths[path];
  return fields ? Object.fromEntries(Object.entries(example).filter(([name]) => fields.includes(name))) : example;
}

test('there are samples in four languages of all operations but the one that streams', () => {
  const posts = Object.keys(document.paths).filter((path) => document.paths[path]!.post);
  expect(posts.filter((path) => !(path in samples))).toEqual(['/v2/analytics.tail', '/v2/introspect']);
  for (const { programs } of Object.values(samples)) expect(Object.keys(programs)).toEqual(Object.keys(toolchains));
  const variables = Object.values(samples).flatMap((sample) => sample.variables);
  expect([...new Set(variables)].sort()).toEqual(
    'API_ID HOLD_ID IDENTITY_ID KEY KEY_ID KEY_ID_2 ROLE_ID ROOT_KEY ROOT_KEY_ID'.split(' '),
  );
  expect(JSON.stringify(samples)).not.toMatch(/_Example\d/);
});

test('the reference begins with samples that need no other record', () => {
  for (const [path, variables] of Object.entries({
    '/v2/keys.verifyKey': ['ROOT_KEY', 'KEY'],
    '/v2/keys.createKey': ['ROOT_KEY', 'API_ID'],
    '/v2/ratelimits.limit': ['ROOT_KEY'],
  }))
    expect([path, samples[path]!.variables]).toEqual([path, variables]);
  expect(Object.keys(firstPaths)).toHaveLength(3);
});

describe.each(Object.entries(toolchains))('%s', (language, toolchain) => {
  const [program, ...args] = toolchain.version as [string, ...string[]];
  const missing = spawnSync(program, args).status === 0 ? '' : ` (SKIPPED: there is no ${program})`;
  const testHere = test.skipIf(missing !== '');
  const programOf = (path: string) => samples[path]!.programs[language]!;

  testHere(`runs against a server: creates a key, verifies it, checks a limit${missing}`, async () => {
    const { apiId } = await h.ok('apis.createApi', { name: 'payments' });
    const call = (path: string, env: Record<string, string> = {}) =>
      run(toolchain, server.url, programOf(path), { ROOT_KEY: h.rootKey, ...env });
    const created = await call('/v2/keys.createKey', { API_ID: apiId });
    const [, key] = /\bkey\W+(pay_\w+)/.exec(created)!;
    const ratelimits = [{ name: 'requests', limit: 100, autoApply: true }];
    expect(await h.ok('apis.listKeys', { apiId })).toMatchObject([{ name: "Ada's laptop", ratelimits }]);

    expect(await call('/v2/keys.verifyKey', { KEY: key! })).toMatch(/\bcode\W+VALID\b/);
    expect(await call('/v2/keys.verifyKey', { KEY: `${key}x` })).toMatch(/\bcode\W+NOT_FOUND\b/);
    const limit = requestOf('/v2/ratelimits.limit') as { cost: number };
    const remaining = async () => (await h.ok('ratelimits.limit', { ...limit, cost: 0 } as never)).remaining;
    const before = await remaining();
    expect(await call('/v2/ratelimits.limit')).toMatch(/\bsuccess\W+true\b/i);
    expect(await remaining()).toBe(before - 1);
  });

  testHere(`sends the example of each operation${missing}`, async () => {
    const variables = Object.values(samples).flatMap((sample) => sample.variables);
    const env = Object.fromEntries(variables.map((name, index) => [name, `of_Example${index}`]));
    const whole = toolchain.all(paths.map(programOf));
    const sent = await recorded((origin) => run(toolchain, origin, whole, env));
    expect([...sent.keys()].sort()).toEqual([...paths].sort());
    for (const [path, { method, headers, body }] of sent) {
      const { authorization, 'content-type': contentType } = headers;
      expect({ path, method, authorization, contentType }).toEqual({
        path,
        method: 'POST',
        authorization: `Bearer ${env.ROOT_KEY}`,
        contentType: 'application/json',
      });
      expect([path, masked(body)]).toEqual([path, masked(requestOf(path))]);
    }
    expect(sent.get('/v2/keys.verifyKey')!.body).toEqual({ key: env.KEY });
    expect(sent.get('/v2/keys.changeKeys')!.body).toMatchObject({ keyIds: [env.KEY_ID, env.KEY_ID_2] });
  });
});

test('those of TypeScript have no error of types', async () => {
  const own = join(folder, 'types');
  mkdirSync(own);
  paths.forEach((path, index) => {
    writeFileSync(join(own, `sample${index}.mts`), samples[path]!.programs.TypeScript!);
  });
  const compilerOptions = {
    ...{ noEmit: true, strict: true, target: 'es2022', module: 'nodenext' },
    ...{ types: ['node'], typeRoots: [resolve('node_modules/@types')], skipLibCheck: true },
  };
  writeFileSync(join(own, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.mts'] }));
  const { stdout } = await promisify(execFile)('node', [resolve('node_modules/typescript/bin/tsc'), '-p', own]).catch(
    (error: { stdout: string }) => error,
  );
  expect(stdout).toBe('');
});
