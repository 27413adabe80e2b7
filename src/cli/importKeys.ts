import {
  accessSync,
  constants,
  createReadStream,
  createWriteStream,
  existsSync,
  rmSync,
  statSync,
  type WriteStream,
} from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import { finished } from 'node:stream/promises';
import type { Config } from '../config.ts';
import { print } from '../domain/json.ts';
import { ApiError } from '../errors.ts';
import type { CreateKeys } from '../store/keys.ts';
import { cliActor } from '../store/rootKeys.ts';
import type { Store } from '../store/store.ts';
import { countsInWords } from './exportKeys.ts';
import type { Said } from './index.ts';
import { type Kind, kinds, knownFields, readLine, type Wanted } from './keyLines.ts';
import { startProgress } from './progress.ts';
import { requireWorkspace } from './workspaces.ts';

export interface Import {
  workspace: string;
  /** All keys go into this API, whatever their lines say. */
  api?: string;
  /** Checks every line and decides, but changes nothing. */
  dryRun?: true;
}

/** A step: so many lines, or so many bytes of them. It keeps Redis from others for some milliseconds. */
const linesAStep = 250;
const bytesAStep = 1024 * 1024;
/** Refusals told in words; all of them are in the file. */
const refusalsShown = 10;

const actor = { ...cliActor, operation: 'cli.import' };

interface Line {
  number: number;
  /** Undefined when it is longer than is accepted. */
  bytes: Buffer | undefined;
}

type WantedOf<K extends Kind> = Extract<Wanted, { kind: K }>;
/** What a line asks for, and where it stands. */
type Entry<K extends Kind = Kind> = WantedOf<K> & { line: Line };

interface Refusal {
  line: Line;
  errors: { field: string; message: string }[];
}

const newCounts = () => Object.fromEntries(kinds.map((kind) => [kind, 0])) as Record<Kind, number>;

/**
 * Creates what the lines of a file (`-` is standard input) ask for, by the store functions that the operations use. What
 * exists is left as it is, so that a second run does what the first one did not come to, however that one ended.
 */
export async function importKeys(store: Store, config: Config, file: string, options: Import): Promise<Said> {
  const { workspace, api, dryRun } = options;
  await requireWorkspace(store, workspace);
  if (api !== undefined && !(await store.apis.find(workspace, api)))
    throw new Error(`There is no API ${api} in ${workspace}.`);
  const fromStdin = file === '-';
  if (!fromStdin) checkReadable(file);

  const refused = openRefused(fromStdin ? undefined : refusedFileOf(file));
  const read = { metaBytesMax: config.metaBytesMax, apiId: api };
  const importer = new Importer(store, options);
  const progress = startProgress(dryRun ? 'check' : 'import', fromStdin ? undefined : statSync(file).size);
  const input = fromStdin ? process.stdin : createReadStream(file, { highWaterMark: 256 * 1024 });
  let doneLines = 0;
  let sending = Promise.resolve();
  try {
    for await (const { lines, end } of steps(input, config.bodyBytesMax)) {
      // Read while Redis is busy with the lines before.
      const refusals: Refusal[] = [];
      const entries: Entry[] = [];
      for (const line of lines) {
        try {
          if (!line.bytes) throw tooLong(config.bodyBytesMax);
          entries.push({ ...readLine(line.bytes, read), line });
        } catch (error) {
          refusals.push(refusalOf(line, error));
        }
      }
      await sending;
      sending = (async () => {
        refusals.push(...(await importer.create(entries)));
        await refused.write(refusals);
        doneLines = lines.at(-1)?.number ?? doneLines;
        progress.at(end, doneLines);
      })();
      // It is awaited a step later.
      sending.catch(() => {});
    }
    await sending;
  } catch (error) {
    progress.stop();
    const place = `The import ended after line ${doneLines}: ${causeOf(error)}`;
    throw new Error(`${place} Run the same command again: what is there already is passed over.`, { cause: error });
  } finally {
    await refused.end();
  }
  progress.stop();

  const missing = dryRun ? await roomMissing(store, config, workspace, importer.created) : 0;
  return { ...summaryOf(importer, refused, missing, options, config), aside: fromStdin };
}

/** What was done, in words and as JSON. */
function summaryOf(
  { created, existed, unknownLength }: Importer,
  refused: ReturnType<typeof openRefused>,
  missing: number,
  { dryRun }: Import,
  { recordsMax }: Config,
): Said {
  const number = (count: number) => count.toLocaleString('en');
  const words = [`${dryRun ? 'Would import' : 'Imported'} ${countsInWords(created)}.`];
  if (kinds.some((kind) => existed[kind] > 0)) words.push(`There already: ${countsInWords(existed)}.`);
  if (missing > 0) {
    words.push(
      `There is no room for ${number(missing)} of these: a workspace may have ${number(recordsMax)} records (RECORDS_MAX).`,
    );
  }
  if (refused.count > 0) words.push(`Refused: ${number(refused.count)} lines.`, ...refused.words);
  if (unknownLength > 0) {
    words.push(
      `Made elsewhere: ${number(unknownLength)} of the keys. Their hashes do not show how long their strings are; ` +
        'make sure that they have at least 22 random characters (docs/moving.md, Short keys).',
    );
  }
  const json = {
    created,
    existed,
    ...(missing > 0 && { missingRoom: missing }),
    ...(unknownLength > 0 && { unknownLength }),
    refused: refused.count,
    ...(refused.file && { refusedFile: refused.file }),
  };
  return { words, json, failed: refused.count > 0 || missing > 0 };
}

/** How many of the records that a dry run would create are more than the workspace may have. */
async function roomMissing(store: Store, { recordsMax }: Config, workspace: string, created: Record<Kind, number>) {
  if (recordsMax === 0) return 0;
  const wanted = Object.values(created).reduce((sum, count) => sum + count, await store.sweep.count(workspace));
  return Math.max(0, wanted - recordsMax);
}

/** What cannot be read now is not worth another run. */
function checkReadable(file: string) {
  if (!existsSync(file)) throw new Error(`There is no file ${file}.`);
  if (statSync(file).isDirectory()) throw new Error(`${file} is a directory.`);
  accessSync(file, constants.R_OK);
}

/** Steps of an input: whole lines without their line feeds, and how many bytes have been read up to their end. */
async function* steps(
  input: AsyncIterable<Buffer>,
  lineBytesMax: number,
): AsyncGenerator<{ lines: Line[]; end: number }> {
  let number = 0;
  let end = 0;
  let lines: Line[] = [];
  let bytes = 0;
  /** The beginning of a line that goes on in the next piece of input; of one that is too long only the length. */
  let begun: Buffer[] = [];
  let begunBytes = 0;

  function add(piece: Buffer) {
    begunBytes += piece.length;
    if (begunBytes <= lineBytesMax) begun.push(piece);
    else begun = [];
  }
  function endLine() {
    number++;
    const line = { number, bytes: begunBytes > lineBytesMax ? undefined : Buffer.concat(begun) };
    end += begunBytes + 1;
    bytes += line.bytes?.length ?? 0;
    begun = [];
    begunBytes = 0;
    // An empty line is nothing: some editors end a file with one.
    if (line.bytes?.toString('latin1').trim() !== '') lines.push(line);
  }

  for await (const piece of input) {
    let from = 0;
    for (let at = piece.indexOf(10); at >= 0; at = piece.indexOf(10, from)) {
      add(piece.subarray(from, at));
      endLine();
      from = at + 1;
      if (lines.length === linesAStep || bytes >= bytesAStep) {
        yield { lines, end };
        lines = [];
        bytes = 0;
      }
    }
    add(piece.subarray(from));
  }
  if (begunBytes > 0) endLine();
  yield { lines, end };
}

/** Creates what the lines of a step ask for, kind by kind, and answers what was refused. */
class Importer {
  readonly created = newCounts();
  readonly existed = newCounts();
  /** Created keys that Tollgate did not make. */
  unknownLength = 0;
  readonly #store: Store;
  readonly #options: Import;
  /** In a dry run: names and ids that the import would have made by now. */
  readonly #newRoles = new Set<string>();
  readonly #newApis = new Set<string>();

  constructor(store: Store, options: Import) {
    this.#store = store;
    this.#options = options;
  }

  async create(entries: readonly Entry[]): Promise<Refusal[]> {
    const of = <K extends Kind>(kind: K) => entries.filter((entry): entry is Entry<K> => entry.kind === kind);
    const refusals: Refusal[] = [];
    await Promise.all(of('permission').map((entry) => this.#createPermission(entry)));
    await Promise.all(of('role').map((entry) => this.#createRole(entry)));
    // With an API given for all keys, those of the file are not wanted.
    if (this.#options.api === undefined) {
      for (const entry of of('api')) refusals.push(...(await this.#createApi(entry)));
    }
    await this.#createIdentities(of('identity'));
    const byApi = new Map<string, Entry<'key'>[]>();
    for (const entry of of('key')) {
      const others = byApi.get(entry.apiId);
      if (others) others.push(entry);
      else byApi.set(entry.apiId, [entry]);
    }
    for (const [apiId, keys] of byApi) refusals.push(...(await this.#createKeys(apiId, keys)));
    return refusals;
  }

  /** A hash does not show how long the string is. */
  #noteLength({ byteLength }: WantedOf<'key'>['key']) {
    if (byteLength === undefined) this.unknownLength++;
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
    this.#count('role', isNew);
  }

  async #createApi({ api, line }: Entry<'api'>): Promise<Refusal[]> {
    const { workspace, dryRun } = this.#options;
    const isThere = (await this.#store.apis.find(workspace, api.apiId)) !== undefined;
    if (dryRun && !isThere) this.#newApis.add(api.apiId);
    if (!isThere && !dryRun && !(await this.#store.apis.createAgain(workspace, api, actor)))
      return [refusal(line, 'apiId', 'was that of an API deleted here, whose keys are still being removed')];
    this.#count('api', !isThere);
    return [];
  }

  async #createIdentities(entries: readonly Entry<'identity'>[]) {
    const { workspace, dryRun } = this.#options;
    const wanted = [...new Map(entries.map(({ identity }) => [identity.externalId, identity])).values()];
    if (wanted.length === 0) return;
    const answers = dryRun
      ? await Promise.all(
          wanted.map(async ({ externalId }) =>
            (await this.#store.identities.find(workspace, externalId)) ? null : externalId,
          ),
        )
      : await this.#store.identities.create(workspace, wanted, actor);
    for (const answer of answers) this.#count('identity', answer !== null);
    this.existed.identity += entries.length - wanted.length;
  }

  async #createKeys(apiId: string, entries: readonly Entry<'key'>[]): Promise<Refusal[]> {
    const { workspace, dryRun } = this.#options;
    const refusals: Refusal[] = [];
    const byDigest = new Map<string, Entry<'key'>>();
    const keptIds = new Set<string>();
    for (const entry of entries) {
      const { digest, keptId } = entry.key;
      const name = digest.toString('latin1');
      if (byDigest.has(name)) this.#count('key', false);
      else if (keptId !== undefined && keptIds.has(keptId)) refusals.push(refusal(entry.line, 'keyId', idTaken));
      else {
        byDigest.set(name, entry);
        if (keptId !== undefined) keptIds.add(keptId);
      }
    }
    let left = [...byDigest.values()];
    if (dryRun && this.#newApis.has(apiId)) {
      this.created.key += left.length;
      for (const { key } of left) this.#noteLength(key);
      return refusals;
    }

    // A step is created as a whole or not at all: what stands in its way is taken out, until nothing does.
    while (left.length > 0) {
      const request: CreateKeys = {
        apiId,
        keys: left.map(({ key }) => this.#asked(key)),
        mayCreatePermissions: true,
        dryRun,
      };
      const result = await this.#store.keys.create(workspace, request, actor);
      if ('created' in result) {
        for (const [index, keyId] of result.created.entries()) {
          this.#count('key', keyId !== null);
          if (keyId !== null) this.#noteLength(left[index]!.key);
        }
        break;
      }
      const [isRefused, field, message] = reasonOf(result);
      refusals.push(...left.filter(({ key }) => isRefused(key)).map(({ line }) => refusal(line, field, message)));
      left = left.filter(({ key }) => !isRefused(key));
    }
    return refusals;
  }

  /** In a dry run, a role that the import would have made by now is no obstacle. */
  #asked(key: WantedOf<'key'>['key']) {
    if (this.#newRoles.size === 0) return key;
    return { ...key, roles: key.roles?.filter((role) => !this.#newRoles.has(role)) };
  }
}

type Asked = WantedOf<'key'>['key'];
type Reason = [isRefused: (key: Asked) => boolean, field: string, message: string];

const idTaken = 'is the id of another key';

function reasonOf(result: Extract<Awaited<ReturnType<Store['keys']['create']>>, { refused: string }>): Reason {
  switch (result.refused) {
    case 'api_not_found':
      return [() => true, 'apiId', 'There is no such API. Import its line first, or name another API with --api.'];
    case 'role_not_found':
      return [
        (key) => key.roles?.includes(result.name) === true,
        'roles',
        `There is no role ${JSON.stringify(result.name)}.`,
      ];
    case 'key_id_taken':
      return [(key) => key.keptId === result.name, 'keyId', idTaken];
    default:
      throw new Error(`Keys were refused: ${result.refused}.`);
  }
}

const refusal = (line: Line, field: string, message: string): Refusal => ({ line, errors: [{ field, message }] });

const tooLong = (lineBytesMax: number) =>
  new ApiError('body_too_large', `A line may have ${lineBytesMax} bytes (BODY_LIMIT_BYTES).`);

/** What an operation says of its body, said of a line. Anything but a refusal goes on as the error it is. */
function refusalOf(line: Line, error: unknown): Refusal {
  if (!(error instanceof ApiError) || error.status >= 500) throw error;
  const errors = error.fields.map(({ location, message, fix }) => ({
    field: location.replace(/^body\.?/, ''),
    message: fix ? `${message}. ${fix}` : message,
  }));
  return { line, errors: errors.length > 0 ? errors : [{ field: '', message: error.message }] };
}

/** `keys.jsonl` has its refused lines in `keys.rejected.jsonl`. */
function refusedFileOf(file: string): string {
  const ending = extname(file);
  return join(dirname(file), `${basename(file, ending)}.rejected${ending}`);
}

/** Where refused lines go: a file, which is made when there is one, or standard output. */
function openRefused(file: string | undefined) {
  let stream: WriteStream | NodeJS.WriteStream | undefined;
  if (file !== undefined) rmSync(file, { force: true });
  const state = {
    count: 0,
    words: [] as string[],
    file: undefined as string | undefined,

    async write(refusals: Refusal[]) {
      if (refusals.length === 0) return;
      refusals.sort((one, other) => one.line.number - other.line.number);
      if (!stream) {
        stream = file === undefined ? process.stdout : createWriteStream(file, { mode: 0o600 });
        state.file = file;
        // The callback of the write tells of it.
        stream.on('error', () => {});
      }
      let text = '';
      for (const { line, errors } of refusals) {
        text += `${print({ line: line.number, errors, input: line.bytes && knownFields(line.bytes) })}\n`;
        state.count++;
        if (state.count <= refusalsShown) {
          const what = errors.map(({ field, message }) => [field, message].filter(Boolean).join(' ')).join('; ');
          state.words.push(`  line ${line.number}: ${what}`);
        } else if (state.count === refusalsShown + 1) state.words.push('  …');
      }
      // Written before more is read, so that a file of nothing but faults does not pile up here.
      await new Promise<void>((resolve, reject) => {
        stream!.write(text, (error) => (error ? reject(error) : resolve()));
      });
    },

    async end() {
      if (state.file !== undefined) await finished((stream as WriteStream).end());
      if (state.file !== undefined) state.words.push(`They are in ${state.file}, with the reasons.`);
    },
  };
  return state;
}

const causeOf = (error: unknown) => {
  const { cause, message } = error as Error;
  return cause instanceof Error ? `${message} (${cause.message.split('\n')[0]!.slice(0, 200)})` : message;
};
