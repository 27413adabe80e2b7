// Schemathesis over /openapi.json of a built server, with a root key that may do everything: valid and invalid requests
// to every operation, and every response compared with the document. The checks that are off are listed in its
// configuration (schemathesis/schemathesis.toml), and what is refused although the document accepts it in
// schemathesis/rules.json, each with a reason. CI has time for the valid requests at the bounds of each field only.

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { OpenApiDocument } from '../../src/http/openapi.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { operations } from '../../src/operations/index.ts';
import { startMsMax, startTollgate, type Tollgate } from '../examples/tollgate.ts';
import { openClient } from '../support/client.ts';
import { exampleOf, makeThings } from '../support/examples.ts';
import { run } from '../support/processes.ts';
import { pythonWith } from '../support/python.ts';
import { isLong } from '../support/testIf.ts';
import { report } from './report.ts';

const phases = isLong ? [] : ['--mode', 'positive', '--phases', 'examples,coverage'];

const source = 'test/faults/schemathesis';
const python = pythonWith(join(source, 'requirements.txt'));
const missing = 'missing' in python ? python.missing : undefined;
if (missing) console.warn(`Schemathesis does not run: ${missing}`);

interface Report {
  complete: boolean;
  operations: { total: number; tested: number };
  test_cases: { generated: number; unique_failures: number };
  failures: unknown[];
  errors: unknown[];
  running_time: number;
  warnings: {
    /** Operations that refused most of the valid requests. */
    validation_mismatch: string[];
  };
  /** Accepted valid requests of an operation, by phase. */
  valid_rates: Record<string, Record<string, { accepted: number }>>;
}

let tollgate: Tollgate;
let dir: string;
beforeAll(async () => {
  if (missing) return;
  dir = mkdtempSync(join(tmpdir(), 'tollgate-schemathesis-'));
  // So the gateway check needs no header with a root key. Each line of the log is a failure.
  const env = { LOG_LEVEL: 'warn', REDIS_TIMEOUT_MS: '60000' };
  tollgate = await startTollgate(({ rootKey }) => ({ GATEWAY_ROOT_KEY: rootKey, ...env }));
}, startMsMax);
afterAll(async () => {
  if (missing) return;
  await tollgate.stop();
  rmSync(dir, { recursive: true });
});

/** The document, with examples that name existing records which no other operation removes. */
async function documentWithThings(): Promise<OpenApiDocument> {
  const document = (await (await fetch(`${tollgate.url}/openapi.json`)).json()) as OpenApiDocument;
  const { call } = openClient(tollgate.url, tollgate.rootKey);
  // A response without an end would be waited for.
  delete document.paths['/v2/analytics.tail'];
  for (const operation of operations.filter(({ name }) => name !== 'analytics.tail')) {
    for (const name of [operation.name, ...('alias' in operation ? [operation.alias] : [])]) {
      const content = document.paths[`/v2/${name}`]!.post!.requestBody as { content: Record<string, object> };
      const things = await makeThings(call, tollgate.rootKey);
      Object.assign(content.content['application/json']!, { example: exampleOf(operation.name).input(things) });
    }
  }
  return document;
}

/** Operations that refuse a permission of one or two characters, and a very long one, unless it was imported. */
const refuseOddSlugs = (
  JSON.parse(readFileSync(join(source, 'rules.json'), 'utf8')) as { refusal: string; stateOf?: string[] }[]
).flatMap(({ refusal, stateOf = [] }) => (refusal === 'unless the workspace has this permission' ? stateOf : []));

/**
 * Operations that refuse most of the valid requests: no random text is a cursor, most APIs of the run are protected,
 * most random permissions are short, most lists of a hundred keys have a text that looks like an address, and is none
 * (`allowedIps`, see rules.json), and most limits have both `duration` and `period`, or neither of them; with
 * a plan, an identity may have few limits of its own besides.
 */
const mayRefuseMost = (operations as readonly AnyOperation[])
  .filter(
    (operation) =>
      operation.name === 'apis.deleteApi' ||
      operation.name === 'keys.migrateKeys' ||
      /^(ratelimits\.(limit|multiLimit|setOverride)|identities\.createIdentity)$/.test(operation.name) ||
      refuseOddSlugs.includes(operation.name) ||
      (operation.kind === 'manages' && operation.list),
  )
  .flatMap(({ name, alias }) => [name, alias ?? []].flat())
  .map((name) => `POST /v2/${name}`);

test.skipIf(missing)(
  `Schemathesis finds nothing${missing ? ` (SKIPPED: ${missing})` : ''}`,
  async () => {
    if ('missing' in python) return;
    cpSync(source, dir, { recursive: true });
    writeFileSync(join(dir, 'openapi.json'), JSON.stringify(await documentWithThings()));
    const { apiId } = await tollgate.ok('apis.createApi', { name: 'gateway' });
    const { key } = await tollgate.ok('keys.createKey', { apiId });
    await tollgate.ok('plans.createPlan', { planId: 'existing' });
    const options = [
      '--url',
      tollgate.url,
      '--report',
      'json',
      '--report-json-path',
      'report.json',
      '--no-color',
      ...phases,
    ];
    const program = run('python3', [...python.args, '-m', 'schemathesis.cli', 'run', 'openapi.json', ...options], {
      cwd: dir,
      env: { PATH: process.env.PATH, HOME: dir, ...python.env, ROOT_KEY: tollgate.rootKey, KEY: key },
    });
    const code = await program.ended;
    expect(code, program.printed()).toBe(0);

    const result = JSON.parse(readFileSync(join(dir, 'report.json'), 'utf8')) as Report;
    const { total, tested } = result.operations;
    expect(result).toMatchObject({ complete: true, failures: [], errors: [] });
    expect(tested).toBe(total);
    // Requests that are refused before an operation begins prove nothing.
    expect(result.warnings.validation_mismatch.filter((path) => !mayRefuseMost.includes(path))).toEqual([]);
    const rates = Object.entries(result.valid_rates).filter(([name]) => name.startsWith('POST'));
    const accepted = (phases: Report['valid_rates'][string]) =>
      Object.values(phases).reduce((sum, phase) => sum + phase.accepted, 0);
    expect(rates.filter(([, phases]) => accepted(phases) === 0).map(([name]) => name)).toEqual([]);
    expect(rates.length).toBeGreaterThan(operations.length);
    expect(tollgate.server.err).toBe('');
    report({
      order: '11.3',
      fault: 'Schemathesis over `/openapi.json`: right and wrong requests to every operation',
      expected: 'no 5xx; status, headers and body of every response as the document says; wrong requests are refused',
      measured: `${result.test_cases.generated} requests to ${tested} of ${total} operations in ${Math.round(result.running_time)} s, ${result.test_cases.unique_failures} failures`,
    });
  },
  900_000,
);
