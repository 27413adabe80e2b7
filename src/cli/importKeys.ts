import { accessSync, constants, createReadStream, createWriteStream, existsSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import type { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import type { Config } from '../config.ts';
import { print } from '../domain/json.ts';
import { ApiError } from '../errors.ts';
import type { CreateKeys } from '../records/keys.ts';
import { cliActor } from '../records/rootKeys.ts';
import type { Store } from '../store.ts';
import { formatCounts } from './exportKeys.ts';
import { type Kind, kinds, knownFields, type LineRecord, readLine } from './keyLines.ts';
import { startProgress } from './progress.ts';
import type { CommandResult } from './result.ts';
import type { Terminal } from './terminal.ts';
import { requireWorkspace } from './workspaces.ts';

interface Import {
  workspace: string;
  /** The API of all keys; replaces that of their lines. */
  api?: string;
  /** Check every line, but change nothing. */
  dryRun?: true;
}

/** A step has at most these. It blocks Redis for a few milliseconds. */
const linesPerStep = 250;
const bytesPerStep = 1024 * 1024;
/** At most this many rejections are printed. The file has all of them. */
const printedRejections = 10;
/** At most this many different reasons for rejections are counted, and different wildcards. */
const reasonsMax = 100;
const wildcardsMax = 100;

const actor = { ...cliActor, operation: 'cli.import' };

interface Line {
  number: number;
  /** Undefined if the line is too long. */
  bytes: Buffer | undefined;
}

type RecordOf<K extends Kind> = Extract<LineRecord, { kind: K }>;
/** A record and its line. */
type Entry<K extends Kind = Kind> = RecordOf<K> & { line: Line };

interface Rejection {
  line: Line;
  errors: { field: string; message: string }[];
}

const newCounts = () => Object.fromEntries(kinds.map((kind) => [kind, 0])) as Record<Kind, number>;

/**
 * Creates the records of a file (`-` is standard input) with the store functions that the operations use. Existing
 * records are left unchanged, so a second run completes a first one that was interrupted.
 */
export async function importKeys(
  { store, config, terminal }: { store: Store; config: Config; terminal: Terminal },
  file: string,
  options: Import,
): Promise<CommandResult> {
  const { stdin, stdout, stderr } = terminal;
  const { workspace, api, dryRun } = options;
  await requireWorkspace(store, workspace);
  if (api !== undefined && !(await store.apis.find(workspace, api)))
    throw new Error(`There is no API ${api} in ${workspace}.`);
  const fromStdin = file === '-';
  if (!fromStdin) checkReadable(file);

  const rejected = new RejectedLines(stdout, fromStdin ? undefined : rejectedFileOf(file));
  const importer = new Importer(store, options);
  const progress = startProgress(stderr, dryRun ? 'check' : 'import', fromStdin ? undefined : statSync(file).size);
  const input = fromStdin ? stdin : createReadStream(file, { highWaterMark: 256 * 1024 });
  let doneLines = 0;
  let creating = Promise.resolve();
  async function createRecords({ lines, end }: Step, { entries, rejections }: ReturnType<typeof readLines>) {
    rejections.push(...(await importer.create(entries)));
    await rejected.write(rejections);
    doneLines = lines.at(-1)?.number ?? doneLines;
    progress.update(end, doneLines);
  }
  try {
    for await (const step of steps(input, config.bodyBytesMax)) {
      // Read while Redis is busy with the previous step.
      const read = readLines(step.lines, config, api);
      await creating;
      creating = createRecords(step, read);
      // The next `await creating` throws its failure; this only avoids an unhandled rejection.
      creating.catch(() => {});
    }
    await creating;
  } catch (error) {
    progress.stop();
    const place = `The import stopped after line ${doneLines}: ${causeOf(error)}`;
    throw new Error(`${place} Run the same command again; existing records are skipped.`, { cause: error });
  } finally {
    await rejected.end();
  }
  progress.stop();

  const excess = dryRun ? await recordsAboveMax(store, config, workspace, importer.created) : 0;
  return { ...summaryOf(importer, rejected, excess, options, config), toStderr: fromStdin };
}

function readLines(lines: readonly Line[], { bodyBytesMax, metaBytesMax }: Config, apiId: string | undefined) {
  const rejections: Rejection[] = [];
  const entries: Entry[] = [];
  for (const line of lines) {
    try {
      if (!line.bytes) throw tooLong(bodyBytesMax);
      entries.push({ ...readLine(line.bytes, { metaBytesMax, apiId }), line });
    } catch (error) {
      rejections.push(rejectionOf(line, error));
    }
  }
  return { entries, rejections };
}

function summaryOf(
  { created, existed, unknownLength, wildcards, wildcardsOfRoles }: Importer,
  rejected: RejectedLines,
  excess: number,
  { dryRun }: Import,
  { recordsMax }: Config,
): CommandResult {
  const number = (count: number) => count.toLocaleString('en');
  const lines = [`${dryRun ? 'Would import' : 'Imported'} ${formatCounts(created)}.`];
  if (kinds.some((kind) => existed[kind] > 0)) lines.push(`Already existed: ${formatCounts(existed)}.`);
  if (excess > 0) {
    lines.push(
      `${number(excess)} of these exceed the maximum of ${number(recordsMax)} records per workspace (RECORDS_MAX).`,
    );
  }
  if (rejected.count > 0) {
    const reasons = [...rejected.reasons].sort(([, one], [, other]) => other - one);
    const counts = reasons.map(([reason, count]) => `  ${number(count)} × ${reason}`);
    lines.push(
      `Rejected: ${number(rejected.count)} lines.`,
      ...(reasons.length > 1 ? counts : []),
      ...rejected.printed,
    );
  }
  // A file without keys from elsewhere is from a Tollgate, where such permissions meant the same.
  const ofRoles = unknownLength > 0 ? wildcardsOfRoles : new Map<string, number>();
  lines.push(...wildcardLines(wildcards, ofRoles));
  if (unknownLength > 0) {
    lines.push(
      `Issued elsewhere: ${number(unknownLength)} of the keys. A hash does not reveal the length of the key string; ` +
        'make sure that all of them have at least 22 random characters (docs/moving.md, Short keys).',
    );
  }
  const json = {
    created,
    existed,
    ...(excess > 0 && { missingRoom: excess }),
    ...(unknownLength > 0 && { unknownLength }),
    ...(wildcards.size > 0 && { wildcards: Object.fromEntries(wildcards) }),
    ...(ofRoles.size > 0 && { wildcardsOfRoles: Object.fromEntries(ofRoles) }),
    refused: rejected.count,
    ...(rejected.count > 0 && { refusedFor: Object.fromEntries(rejected.reasons) }),
    ...(rejected.file && { refusedFile: rejected.file }),
  };
  return { lines, json, failed: rejected.count > 0 || excess > 0 };
}

function noteWildcards(wildcards: Map<string, number>, permissions: readonly string[]) {
  for (const slug of permissions) {
    const isNoted = slug === '*' || slug.endsWith('.*');
    if (isNoted && (wildcards.has(slug) || wildcards.size < wildcardsMax))
      wildcards.set(slug, (wildcards.get(slug) ?? 0) + 1);
  }
}

/** What an operator should know of permissions that another service may have read in another way. */
function wildcardLines(ofKeys: ReadonlyMap<string, number>, ofRoles: ReadonlyMap<string, number>): string[] {
  const textsOf = (wildcards: ReadonlyMap<string, number>, what: string) =>
    [...wildcards].map(([slug, count]) => ({ slug, text: `${slug} (${count.toLocaleString('en')} ${what})` }));
  const all = [...textsOf(ofKeys, 'keys'), ...textsOf(ofRoles, 'roles')];
  const wider = all.filter(({ slug }) => slug !== '*').map(({ text }) => text);
  const alone = all.filter(({ slug }) => slug === '*').map(({ text }) => text);
  return [
    ...(wider.length > 0
      ? [
          `Wildcards: ${wider.join(', ')}. In Tollgate such a permission covers all that begin like it. In Unkey it is ` +
            'literal: these keys get more rights than they had (docs/moving.md).',
        ]
      : []),
    ...(alone.length > 0 ? [`A permission that is a lone star is literal, as in Unkey: ${alone.join(', ')}.`] : []),
  ];
}

/** Returns by how many records a dry run would exceed the maximum of the workspace. */
async function recordsAboveMax(store: Store, { recordsMax }: Config, workspace: string, created: Record<Kind, number>) {
  if (recordsMax === 0) return 0;
  const wanted = Object.values(created).reduce((sum, count) => sum + count, await store.sweep.count(workspace));
  return Math.max(0, wanted - recordsMax);
}

/** Fails before anything is created. */
function checkReadable(file: string) {
  if (!existsSync(file)) throw new Error(`There is no file ${file}.`);
  if (statSync(file).isDirectory()) throw new Error(`${file} is a directory.`);
  accessSync(file, constants.R_OK);
}

interface Step {
  /** Complete lines without their line feeds. */
  lines: Line[];
  /** The offset in the input after these lines. */
  end: number;
}

async function* steps(input: AsyncIterable<Buffer>, lineBytesMax: number): AsyncGenerator<Step> {
  let number = 0;
  let end = 0;
  let lines: Line[] = [];
  let bytes = 0;
  /** The start of an incomplete line; empty if the line is too long. */
  let partial: Buffer[] = [];
  let partialBytes = 0;

  function add(chunk: Buffer) {
    partialBytes += chunk.length;
    if (partialBytes <= lineBytesMax) partial.push(chunk);
    else partial = [];
  }
  function endLine() {
    number++;
    const line = { number, bytes: partialBytes > lineBytesMax ? undefined : Buffer.concat(partial) };
    end += partialBytes + 1;
    bytes += line.bytes?.length ?? 0;
    partial = [];
    partialBytes = 0;
    // Empty lines are ignored: some editors end a file with one.
    if (line.bytes?.toString('latin1').trim() !== '') lines.push(line);
  }

  for await (const chunk of input) {
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
      add(chunk.subarray(from, at));
      endLine();
      from = at + 1;
      if (lines.length === linesPerStep || bytes >= bytesPerStep) {
        yield { lines, end };
        lines = [];
        bytes = 0;
      }
    }
    add(chunk.subarray(from));
  }
  if (partialBytes > 0) endLine();
  yield { lines, end };
}

/** Creates the records of a step, kind by kind, and returns those that were rejected. */
class Importer {
  readonly created = newCounts();
  readonly existed = newCounts();
  /** Created keys that another system issued. */
  unknownLength = 0;
  /**
   * Their permissions that mean more here, and those that mean the same but look as if they did not: with the number of
   * keys.
   */
  readonly wildcards = new Map<string, number>();
  /** The same permissions of created roles, with the number of roles. Files of Tollgate have them, too. */
  readonly wildcardsOfRoles = new Map<string, number>();
  readonly #store: Store;
  readonly #options: Import;
  /** In a dry run: names of roles and ids of APIs that earlier lines would have created. */
  readonly #newRoles = new Set<string>();
  readonly #newApis = new Set<string>();

  constructor(store: Store, options: Import) {
    this.#store = store;
    this.#options = options;
  }

  async create(entries: readonly Entry[]): Promise<Rejection[]> {
    const ofKind = <K extends Kind>(kind: K) => entries.filter((entry): entry is Entry<K> => entry.kind === kind);
    const rejections: Rejection[] = [];
    await Promise.all(ofKind('permission').map((entry) => this.#createPermission(entry)));
    await Promise.all(ofKind('role').map((entry) => this.#createRole(entry)));
    // With --api, the APIs of the file are not created.
    if (this.#options.api === undefined) {
      for (const entry of ofKind('api')) rejections.push(...(await this.#createApi(entry)));
    }
    await this.#createIdentities(ofKind('identity'));
    const byApi = new Map<string, Entry<'key'>[]>();
    for (const entry of ofKind('key')) {
      const others = byApi.get(entry.apiId);
      if (others) others.push(entry);
      else byApi.set(entry.apiId, [entry]);
    }
    for (const [apiId, keys] of byApi) rejections.push(...(await this.#createKeys(apiId, keys)));
    return rejections;
  }

  #noteNew({ byteLength, permissions = [] }: RecordOf<'key'>['key']) {
    if (byteLength !== undefined) return;
    this.unknownLength++;
    noteWildcards(this.wildcards, permissions);
  }

  #count(kind: Kind, isNew: boolean) {
    (isNew ? this.created : this.existed)[kind]++;
  }

  async #createPermission({ permission }: Entry<'permission'>) {
    const { workspace, dryRun } = this.#options;
    const isNew = dryRun
      ? !(await this.#store.permissions.find(workspace, permission.slug))
      : (await this.#store.permissions.create(workspace, permission, actor)) !== undefined;
    this.#count('permission', isNew);
  }

  async #createRole({ role }: Entry<'role'>) {
    const { workspace, dryRun } = this.#options;
    const isNew = dryRun
      ? !(await this.#store.roles.find(workspace, role.name))
      : 'roleId' in (await this.#store.roles.create(workspace, role, true, actor));
    if (dryRun && isNew) this.#newRoles.add(role.name);
    if (isNew) noteWildcards(this.wildcardsOfRoles, role.permissions);
    this.#count('role', isNew);
  }

  async #createApi({ api, line }: Entry<'api'>): Promise<Rejection[]> {
    const { workspace, dryRun } = this.#options;
    const isThere = (await this.#store.apis.find(workspace, api.apiId)) !== undefined;
    if (dryRun && !isThere) this.#newApis.add(api.apiId);
    if (!isThere && !dryRun && !(await this.#store.apis.createAgain(workspace, api, actor)))
      return [rejection(line, 'apiId', 'belonged to a deleted API whose keys are still being removed')];
    this.#count('api', !isThere);
    return [];
  }

  async #createIdentities(entries: readonly Entry<'identity'>[]) {
    const { workspace, dryRun } = this.#options;
    const identities = [...new Map(entries.map(({ identity }) => [identity.externalId, identity])).values()];
    if (identities.length === 0) return;
    const created = dryRun
      ? await Promise.all(
          identities.map(async ({ externalId }) =>
            (await this.#store.identities.find(workspace, externalId)) ? null : externalId,
          ),
        )
      : await this.#store.identities.create(workspace, identities, actor);
    for (const id of created) this.#count('identity', id !== null);
    this.existed.identity += entries.length - identities.length;
  }

  async #createKeys(apiId: string, entries: readonly Entry<'key'>[]): Promise<Rejection[]> {
    const { workspace, dryRun } = this.#options;
    const { distinct, rejections } = this.#withoutRepeated(entries);
    if (dryRun && this.#newApis.has(apiId)) {
      this.created.key += distinct.length;
      for (const { key } of distinct) this.#noteNew(key);
      return rejections;
    }

    // A step is created completely or not at all. If it is refused, the keys at fault are rejected and the rest is
    // tried again.
    let left = distinct;
    while (left.length > 0) {
      const request: CreateKeys = {
        apiId,
        keys: left.map(({ key }) => this.#withoutNewRoles(key)),
        mayCreatePermissions: true,
        dryRun,
      };
      const result = await this.#store.keys.create(workspace, request, actor);
      if ('created' in result) {
        for (const [index, keyId] of result.created.entries()) {
          this.#count('key', keyId !== null);
          if (keyId !== null) this.#noteNew(left[index]!.key);
        }
        break;
      }
      const [isRejected, field, message] = reasonOf(result);
      rejections.push(...left.filter(({ key }) => isRejected(key)).map(({ line }) => rejection(line, field, message)));
      left = left.filter(({ key }) => !isRejected(key));
    }
    return rejections;
  }

  /** Counts repeated digests as existing keys, and rejects repeated ids. */
  #withoutRepeated(entries: readonly Entry<'key'>[]) {
    const rejections: Rejection[] = [];
    const byDigest = new Map<string, Entry<'key'>>();
    const keptIds = new Set<string>();
    for (const entry of entries) {
      const { digest, keptId } = entry.key;
      const name = digest.toString('latin1');
      if (byDigest.has(name)) this.#count('key', false);
      else if (keptId !== undefined && keptIds.has(keptId)) rejections.push(rejection(entry.line, 'keyId', idTaken));
      else {
        byDigest.set(name, entry);
        if (keptId !== undefined) keptIds.add(keptId);
      }
    }
    return { distinct: [...byDigest.values()], rejections };
  }

  /** In a dry run, the store does not know roles that the import would have created by now. */
  #withoutNewRoles(key: RecordOf<'key'>['key']) {
    if (this.#newRoles.size === 0) return key;
    return { ...key, roles: key.roles?.filter((role) => !this.#newRoles.has(role)) };
  }
}

type Reason = [isRejected: (key: RecordOf<'key'>['key']) => boolean, field: string, message: string];

const idTaken = 'is the id of another key';

function reasonOf(result: Extract<Awaited<ReturnType<Store['keys']['create']>>, { refused: string }>): Reason {
  switch (result.refused) {
    case 'api_not_found':
      return [() => true, 'apiId', 'There is no such API. Import its line first, or pass another API with --api.'];
    case 'role_not_found':
      return [
        (key) => key.roles?.includes(result.name) === true,
        'roles',
        `There is no role ${JSON.stringify(result.name)}.`,
      ];
    case 'key_id_taken':
      return [(key) => key.keptId === result.name, 'keyId', idTaken];
    case 'create_permission':
      return [
        (key) => key.permissions?.includes(result.name) === true,
        'permissions',
        `There is no permission ${JSON.stringify(result.name)}.`,
      ];
  }
}

const rejection = (line: Line, field: string, message: string): Rejection => ({ line, errors: [{ field, message }] });

const tooLong = (lineBytesMax: number) =>
  new ApiError('body_too_large', `The line is longer than ${lineBytesMax} bytes (BODY_LIMIT_BYTES).`);

/** Turns the error of an operation about its body into one about a line. Rethrows any other error. */
function rejectionOf(line: Line, error: unknown): Rejection {
  if (!(error instanceof ApiError) || error.status >= 500) throw error;
  const errors = error.fields.map(({ location, message, fix }) => ({
    field: location.replace(/^body\.?/, ''),
    message: fix ? `${message}. ${fix}` : message,
  }));
  return { line, errors: errors.length > 0 ? errors : [{ field: '', message: error.message }] };
}

/** Returns `keys.rejected.jsonl` for `keys.jsonl`. */
function rejectedFileOf(file: string): string {
  const ending = extname(file);
  return join(dirname(file), `${basename(file, ending)}.rejected${ending}`);
}

/** Writes rejected lines to a file, which is created for the first one, or to standard output. */
class RejectedLines {
  count = 0;
  /** The first few, for people. */
  readonly printed: string[] = [];
  /** Counts by field and reason. */
  readonly reasons = new Map<string, number>();
  /** The file, once it exists. */
  file: string | undefined;
  readonly #stdout: Writable;
  readonly #target: string | undefined;
  #stream: Writable | undefined;

  constructor(stdout: Writable, target: string | undefined) {
    this.#stdout = stdout;
    this.#target = target;
    if (target !== undefined) rmSync(target, { force: true });
  }

  async write(rejections: Rejection[]) {
    if (rejections.length === 0) return;
    rejections.sort((one, other) => one.line.number - other.line.number);
    this.#stream ??= this.#open();
    const stream = this.#stream;
    let text = '';
    for (const { line, errors } of rejections) {
      text += `${print({ line: line.number, errors, input: line.bytes && knownFields(line.bytes) })}\n`;
      this.count++;
      for (const { field, message } of errors) {
        // Without places in lists, and what the line itself says.
        const reason = `${field.replace(/\[\d+\]/g, '[]')} ${message.replace(/"(?:[^"\\]|\\.)*"/g, '"…"')}`.trim();
        const known = this.reasons.has(reason) || this.reasons.size < reasonsMax ? reason : 'other reasons';
        this.reasons.set(known, (this.reasons.get(known) ?? 0) + 1);
      }
      if (this.count <= printedRejections) {
        const reason = errors.map(({ field, message }) => [field, message].filter(Boolean).join(' ')).join('; ');
        this.printed.push(`  line ${line.number}: ${reason}`);
      } else if (this.count === printedRejections + 1) this.printed.push('  …');
    }
    // Waits, so that memory stays bounded if every line is rejected.
    await new Promise<void>((resolve, reject) => {
      stream.write(text, (error) => (error ? reject(error) : resolve()));
    });
  }

  #open(): Writable {
    this.file = this.#target;
    const stream = this.#target === undefined ? this.#stdout : createWriteStream(this.#target, { mode: 0o600 });
    // The callback of the write reports errors.
    stream.on('error', () => {});
    return stream;
  }

  async end() {
    if (this.file === undefined) return;
    await finished(this.#stream!.end());
    this.printed.push(`${this.file} has the rejected lines and the reasons.`);
  }
}

const causeOf = (error: unknown) => {
  const { cause, message } = error as Error;
  return cause instanceof Error ? `${message} (${cause.message.split('\n')[0]!.slice(0, 200)})` : message;
};
