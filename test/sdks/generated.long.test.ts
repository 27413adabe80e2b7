// Clients that others generate from /openapi.json of a running server (docs/clients.md): each is compiled, verifies a
// key with a limit, and reads an error. What a machine lacks is skipped with the reason.

import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { build, endAll, startAlone } from '../support/processes.ts';
import { pythonWith } from '../support/python.ts';

type Command = readonly [program: string, ...args: string[]];
interface Client {
  /** Downloads what is pinned. A failure is the reason to skip. */
  gets: readonly Command[];
  /** Generates and compiles. */
  makes: readonly Command[];
  /** Prints `code`, `reset`, `status` and `title`. */
  runs: Command;
  env?: NodeJS.ProcessEnv;
}

const sources = resolve('test/sdks/generated');
/** Packages and what Rust compiled stay below it; what is generated is removed. */
const folder = resolve('node_modules/.cache/tollgate/generated');
const generator = '7.25.0';
const jar = `${homedir()}/.m2/repository/org/openapitools/openapi-generator-cli/${generator}/openapi-generator-cli-${generator}.jar`;
const getsJar: Command = [
  'mvn',
  '-q',
  'dependency:get',
  `-Dartifact=org.openapitools:openapi-generator-cli:${generator}`,
];
const generates = (language: string, output: string, ...more: string[]): Command => [
  ...(['java', '-jar', jar, 'generate', '-i', 'openapi.json', '-g', language, '-o', output] as const),
  ...['--global-property', 'apiTests=false,modelTests=false,apiDocs=false,modelDocs=false', ...more],
];
const goClient = (name: string, gets: readonly Command[], ...makes: Command[]): Client => ({
  gets: [...gets, ['go', 'mod', 'download']],
  makes: [...makes, ['go', 'build', '-o', `bin/${name}-client`, `./cmd/${name}`]],
  runs: [`bin/${name}-client`],
  env: { GOBIN: join(folder, 'bin'), GOFLAGS: '-mod=mod', GOWORK: 'off', GOTOOLCHAIN: 'local' },
});
const python = pythonWith('test/sdks/generated/requirements.txt');
const [pythonArgs, pythonEnv] = 'missing' in python ? [[], {}] : [python.args, python.env];

const clients: Record<string, Client> = {
  'oapi-codegen (Go)': goClient(
    'oapi',
    [['go', 'install', 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2']],
    ['bin/oapi-codegen', '-generate', 'types,client', '-package', 'oapi', '-o', 'oapi/client.go', 'openapi.json'],
  ),
  'ogen (Go)': goClient(
    'ogen',
    [['go', 'install', 'github.com/ogen-go/ogen/cmd/ogen@v1.24.0']],
    ['bin/ogen', '--target', 'ogen', '--package', 'ogen', '--clean', 'openapi.json'],
  ),
  'openapi-generator (Go)': goClient(
    'openapi',
    [getsJar],
    generates('go', 'openapi'),
    // The package is one of this module.
    ['rm', 'openapi/go.mod'],
  ),
  'openapi-generator (Java)': {
    gets: [getsJar],
    makes: [
      generates('java', 'java', '--library', 'native'),
      ['cp', 'Client.java', 'java/src/main/java/'],
      ['mvn', '-q', '-f', 'java/pom.xml', '-Dmaven.test.skip=true', '-Dmaven.javadoc.skip=true', 'package'],
    ],
    runs: ['java', '-cp', 'java/target/classes:java/target/lib/*', 'Client'],
  },
  'openapi-generator (Rust)': {
    gets: [['cargo', '--version'], getsJar],
    makes: [
      generates('rust', 'rust'),
      ['mkdir', 'rust/examples'],
      ['cp', 'client.rs', 'rust/examples/'],
      [
        'sh',
        '-c',
        `printf '[dev-dependencies]\\ntokio = { version = "1", features = ["rt", "macros"] }\\n' >> rust/Cargo.toml`,
      ],
      ['cargo', 'build', '-q', '--manifest-path', 'rust/Cargo.toml', '--example', 'client', '--no-default-features'],
    ],
    runs: ['target/debug/examples/client'],
    env: { CARGO_TARGET_DIR: join(folder, 'target') },
  },
  'openapi-python-client': {
    gets: 'missing' in python ? [['sh', '-c', `echo '${python.missing}' >&2; false`]] : [],
    makes: [
      [
        ...(['python3', ...pythonArgs, '-m', 'openapi_python_client', 'generate', '--path', 'openapi.json'] as const),
        ...['--meta', 'none', '--output-path', 'tollgate_client', '--overwrite'],
      ],
    ],
    runs: ['python3', ...pythonArgs, 'client.py'],
    env: pythonEnv,
  },
  'openapi-typescript': {
    gets: [['npm', 'install', '--no-save', '--silent', 'openapi-typescript@7.13.0', 'openapi-fetch@0.17.0']],
    makes: [
      ['node_modules/.bin/openapi-typescript', 'openapi.json', '-o', 'tollgate.d.ts'],
      [
        'node',
        resolve('node_modules/typescript/bin/tsc'),
        '--ignoreConfig',
        '--strict',
        '--module',
        'nodenext',
        '--target',
        'es2023',
        'client.ts',
      ],
    ],
    runs: ['node', 'client.js'],
  },
};

const execute = ([program, ...args]: Command, env?: NodeJS.ProcessEnv) =>
  spawnSync(program, args, { cwd: folder, env: { ...process.env, ...env }, encoding: 'utf8', timeout: 600_000 });

mkdirSync(folder, { recursive: true });
cpSync(sources, folder, { recursive: true });
writeFileSync(join(folder, 'package.json'), '{"type":"module","private":true}');

/** The reason why a client cannot be made here. */
function missingOf({ gets, env }: Client): string | undefined {
  for (const command of gets) {
    const { status, error, stderr } = execute(command, env);
    if (status !== 0) return `${command.join(' ')}: ${error?.message ?? stderr.trim().split('\n').at(-1)}`;
  }
  return undefined;
}

let server: Awaited<ReturnType<typeof startAlone>>;
let key: string;
beforeAll(async () => {
  await build();
  server = await startAlone();
  for (const made of ['oapi', 'ogen', 'openapi', 'java', 'rust', 'tollgate_client'])
    rmSync(join(folder, made), { recursive: true, force: true });
  mkdirSync(join(folder, 'oapi'));
  writeFileSync(join(folder, 'openapi.json'), await (await fetch(`${server.url}/openapi.json`)).text());
  const { apiId } = await call('apis.createApi', { name: 'clients' });
  const ratelimits = [{ name: 'requests', limit: 100, duration: 60_000, autoApply: true }];
  ({ key } = await call('keys.createKey', { apiId, ratelimits }));
});
afterAll(endAll);

async function call(name: string, input: object) {
  const response = await fetch(`${server.url}/v2/${name}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${server.rootKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(input),
  });
  return ((await response.json()) as { data: Record<'apiId' | 'key', string> }).data;
}

for (const [name, client] of Object.entries(clients)) {
  const missing = missingOf(client);
  if (missing) console.warn(`A client by ${name} is not tested: ${missing}`);
  describe.skipIf(missing)(`a client by ${name}${missing ? ` (SKIPPED: ${missing})` : ''}`, () => {
    test('is generated, is compiled, verifies a key, and reads an error', { timeout: 900_000 }, () => {
      const startedAt = Date.now();
      const outcome = (command: Command) => {
        const { status, error, stdout, stderr } = execute(command, client.env);
        expect(status, `${command.join(' ')}: ${error?.message ?? `${stdout}${stderr}`.slice(-3000)}`).toBe(0);
        return stdout;
      };
      client.makes.forEach(outcome);
      const [program, ...args] = client.runs;
      const printed = outcome([program, ...args, server.url, server.rootKey, key]);
      expect(JSON.parse(printed)).toEqual({
        code: 'VALID',
        reset: expect.any(Number),
        status: 404,
        title: 'Key not found',
      });
      expect(JSON.parse(printed).reset).toBeGreaterThan(startedAt);
    });
  });
}
