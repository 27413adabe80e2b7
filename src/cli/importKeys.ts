import { accessSync, constants, createReadStream, createWriteStream, existsSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import type { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import type { Config } from '../config.ts';
import { print } from '../domain/json.ts';
import { valueIn } from '../domain/text.ts';
import { ApiError } from '../errors.ts';
import type { Store } from '../store.ts';
import { type Entry, Importer, type Line, type Rejection } from './importer.ts';
import { knownFields, readLine } from './keyLines.ts';
import { formatCounts, kinds, kindsOfParts } from './lineKinds.ts';
import { type Progress, withProgress } from './progress.ts';
import type { CommandResult } from './result.ts';
import type { Terminal } from './terminal.ts';
import { requireWorkspace } from './workspaces.ts';

interface Import {
  /** The workspace of all records. Without it, the workspaces of the file are created in an empty Redis. */
  workspace?: string;
  /** The API of all keys; replaces that of their lines. */
  api?: string;
  /** Parts to leave out: `root-keys`, `usage`, `audit`. */
  without?: string;
  /** Parts that are imported even into a workspace that exists: `root-keys`. */
  with?: string;
  /** Check every line, but change nothing. */
  dryRun?: true;
}

/** Lines that are read together. The scripts that create their records are bounded by importSteps.ts. */
const linesPerStep = 250;
const bytesPerStep = 1024 * 1024;
/** At most this many rejections are printed. The file has all of them. */
const printedRejections = 10;
/** At most this many different reasons for rejections are counted. */
const reasonsMax = 100;

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
  if (workspace !== undefined) await requireWorkspace(store, workspace);
  const fromStdin = file === '-';
  if (!fromStdin) checkReadable(file);

  const rejected = new RejectedLines(stdout, fromStdin ? undefined : rejectedFileOf(file));
  const importer = new Importer(store, {
    ...options,
    dryRun: dryRun === true,
    recordsMax: config.recordsMax,
    omitted: kindsOfParts('--without', options.without),
    added: kindsOfParts('--with', options.with),
  });
  await importer.open();
  if (!dryRun) rejected.removeFormer();
  const input = fromStdin ? stdin : createReadStream(file, { highWaterMark: 256 * 1024 });
  let doneLines = 0;
  let creating = Promise.resolve();
  async function createRecords(
    progress: Progress,
    { lines, end }: Step,
    { entries, rejections }: ReturnType<typeof readLines>,
  ) {
    importer.unread += rejections.length;
    const unread = rejections.map(({ line }) => line);
    rejections.push(...(await importer.create(entries, unread)));
    await rejected.write(rejections);
    doneLines = lines.at(-1)?.number ?? doneLines;
    progress.update(end, doneLines);
  }
  const run = async (progress: Progress) => {
    for await (const step of steps(input, config.bodyBytesMax)) {
      // Read while Redis is busy with the previous step.
      const read = readLines(step.lines, config, api);
      await creating;
      creating = createRecords(progress, step, read);
      // The next `await creating` throws its failure; this only avoids an unhandled rejection.
      creating.catch(() => {});
    }
    await creating;
    await importer.end();
  };
  try {
    const total = fromStdin ? undefined : statSync(file).size;
    await withProgress(run, stderr, dryRun ? 'check' : 'import', total);
  } catch (error) {
    const place = `The import stopped after line ${doneLines}: ${causeOf(error)}`;
    throw new Error(`${place} Run the same command again; existing records are skipped.`, { cause: error });
  } finally {
    await rejected.end();
  }

  return { ...summaryOf(importer, rejected, options, config), toStderr: fromStdin };
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
  importer: Importer,
  rejected: RejectedLines,
  { dryRun }: Import,
  { recordsMax }: Config,
): CommandResult {
  const { created, existed, unknownLength, wildcards, wildcardsOfRoles, excess, fault } = importer;
  const number = (count: number) => count.toLocaleString('en');
  const lines = [`${dryRun ? 'Would import' : 'Imported'} ${formatCounts(created)}.`];
  if (kinds.some((kind) => existed[kind] > 0)) lines.push(`Already existed: ${formatCounts(existed)}.`);
  lines.push(...importer.notes(), ...(fault === undefined ? [] : [fault]));
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
        'make sure that all of them have at least 22 random characters (docs/moving.md#short-keys).',
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
    ...importer.details(),
    ...(fault !== undefined && { fault }),
  };
  return { lines, json, failed: rejected.count > 0 || excess > 0 || fault !== undefined };
}

/** Warns about wildcard permissions, which the other service may match differently. */
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
            'literal: these keys get more rights than they had (docs/moving.md#what-changes-for-security).',
        ]
      : []),
    ...(alone.length > 0 ? [`A permission that is a lone star is literal, as in Unkey: ${alone.join(', ')}.`] : []),
  ];
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
    if (line.bytes === undefined || valueIn(line.bytes.toString()) !== '') lines.push(line);
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
  /** The first few, which are printed. */
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
  }

  /** Removes the file of an earlier import. */
  removeFormer() {
    if (this.#target !== undefined) rmSync(this.#target, { force: true });
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
        // The field without places in lists, and the reason without texts of the line.
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
