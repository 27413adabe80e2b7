// The cacheable part of a verification (name, meta, permissions …), and its cache. lua/decide.lua returns a snapshot
// only when the version that the server sends is out of date, as with an ETag.

import { JsonText } from '../domain/json.ts';
import {
  type PrintedLimit,
  planSwitch,
  type Ratelimit,
  ratelimitOf,
  switchesOf,
  temporarySwitch,
} from '../domain/limit.ts';
import { printSnapshot, type Snapshot, type SnapshotIdentity, type SnapshotText } from '../domain/verification.ts';
import {
  keyRecordFields,
  limitEnd,
  type limit as limitStruct,
  never,
  snapshotIdentity,
  snapshot as snapshotStruct,
  type VerifiedName,
  verifiedNames,
} from '../scripts/layout.ts';
import { Reader, type Values } from '../scripts/struct.ts';

/** Bytes of cached snapshots, in each of two generations. */
const snapshotBytesMax = 32 * 1024 * 1024;

/** The doorkeeper identifies a key by this many bits of its digest, and is cleared when it has `doorkeeperMax` keys. */
const doorkeeperBits = 20;
const doorkeeperMax = 2 ** 17;

/** The version to send for a key without a cached snapshot. */
export const noVersion = '\0'.repeat(9);

const replaced = -1;

export interface CachedSnapshot {
  workspaceId: string;
  /** The version as one character per byte. The script compares it with the stored one. */
  version: string;
  snapshot: SnapshotText;
  bytes: number;
  /** Extra batch weight; a plain verification weighs 1. */
  extraWeight: number;
  /** The number of the generation that has it; `replaced` when another version took its place. */
  generation: number;
}

/**
 * Snapshots by the digest of their key, each with its workspace and version. The script confirms the version in the
 * round trip that decides. A key is cached from its second use on (a doorkeeper, as in TinyLFU), so that keys that are
 * used once take no memory, no time of the garbage collector and no other key's place. A key that was imported into two
 * workspaces is cached for the one that used it last.
 */
export class SnapshotCache {
  readonly #doorkeeper = new Uint8Array(2 ** doorkeeperBits / 8);
  #doorkeeperCount = 0;
  /** The number of this generation, its snapshots (those used recently), and the snapshots of the generation before. */
  #generation = 0;
  #recent = new Map<string, CachedSnapshot>();
  #older = new Map<string, CachedSnapshot>();
  #recentBytes = 0;

  find(workspaceId: string, digest: string): CachedSnapshot | undefined {
    const entry = this.#recent.get(digest) ?? this.#older.get(digest);
    return entry?.workspaceId === workspaceId ? entry : undefined;
  }

  /**
   * Whether an entry is of the recent generation, so that `find` would return it. False if another version replaced it.
   */
  isRecent({ generation }: CachedSnapshot): boolean {
    return generation === this.#generation;
  }

  /** Moves an entry whose version was confirmed at a time to the recent generation. */
  keep(digest: string, entry: CachedSnapshot, atMs: number): SnapshotText {
    const { periods } = entry.snapshot;
    if (periods && (atMs < periods.start || atMs >= periods.end))
      entry.snapshot = flattened(printSnapshot(periods.of, atMs));
    // An earlier request may have added a newer version.
    if (entry.generation !== this.#generation && !this.#recent.has(digest)) this.#put(digest, entry);
    return entry.snapshot;
  }

  /** Caches a snapshot, from the second use of its key on. `outdated` is the cached entry of another version. */
  add(
    workspaceId: string,
    digest: string,
    { version, snapshot }: VersionedSnapshot,
    outdated: CachedSnapshot | undefined,
    atMs: number,
  ): SnapshotText {
    // An earlier request may have added this version.
    const added = this.find(workspaceId, digest);
    if (added?.version === version) return this.keep(digest, added, atMs);
    const printed = printSnapshot(snapshot, atMs);
    if (!outdated && !this.#isSecondUse(digest)) return printed;
    const flat = flattened(printed);
    // One with quotas has what it was printed of, too.
    const bytes = 250 + bytesOf(flat) * (flat.periods ? 2 : 1);
    const extraWeight = extraWeightOf(flat, bytes);
    this.#put(digest, { workspaceId, version, snapshot: flat, bytes, extraWeight, generation: this.#generation });
    return flat;
  }

  /** Whether this key, or one with the same last bits of its digest, was used recently. Records this use. */
  #isSecondUse(digest: string): boolean {
    const number = (digest.charCodeAt(31) << 16) | (digest.charCodeAt(30) << 8) | digest.charCodeAt(29);
    const at = (number & (2 ** doorkeeperBits - 1)) >> 3;
    const bit = 1 << (number & 7);
    if (this.#doorkeeper[at]! & bit) return true;
    if (++this.#doorkeeperCount > doorkeeperMax) {
      this.#doorkeeper.fill(0);
      this.#doorkeeperCount = 1;
    }
    this.#doorkeeper[at]! |= bit;
    return false;
  }

  #put(digest: string, entry: CachedSnapshot) {
    if (this.#recentBytes + entry.bytes > snapshotBytesMax) {
      this.#older = this.#recent;
      this.#recent = new Map();
      this.#recentBytes = 0;
      this.#generation++;
    }
    const former = this.#recent.get(digest);
    if (former) former.generation = replaced;
    entry.generation = this.#generation;
    this.#recent.set(digest, entry);
    this.#recentBytes += entry.bytes;
  }
}

export interface VersionedSnapshot {
  version: string;
  snapshot: Snapshot;
}

/**
 * Reads what lua/decide/verification/keySnapshot.lua packs. The caller has to read the slugs of the numbers in
 * `permissionLists`.
 */
export function readSnapshot(packed: Buffer, atMs: number): VersionedSnapshot & { permissionLists: string[] } {
  const reader = new Reader(packed);
  const { version, ...fields } = snapshotStruct.read(reader);
  const snapshot: Snapshot = {
    keyId: `key_${fields.id16}${fields.apiId.slice(-8)}`,
    apiId: fields.apiId,
    enabled: fields.enabled === 1,
    expires: fields.expires === never ? undefined : fields.expires,
    values: valuesOf(fields),
    permissions: linesOf(fields.slugs),
    roles: fields.roles.map(({ name }) => name),
    ratelimits: readLimits(fields.limits, reader, atMs),
    identity: reader.isAtEnd ? undefined : readIdentity(reader, atMs),
    plan: planOf(fields),
  };
  return { version, snapshot, permissionLists: linesOf(fields.permissionLists) };
}

/** In the order of responses. */
function valuesOf(fields: Record<VerifiedName, string | undefined>): Snapshot['values'] {
  const values: Record<string, string | JsonText> = {};
  for (const name of verifiedNames) {
    const stored = fields[name];
    if (stored !== undefined) values[name] = keyRecordFields[name].value.read(stored);
  }
  return values;
}

const planOf = ({ planId, planMeta }: Pick<Values<typeof snapshotStruct.fields>, 'planId' | 'planMeta'>) =>
  planId === undefined ? undefined : { planId, meta: planMeta === undefined ? undefined : new JsonText(planMeta) };

function readIdentity(reader: Reader, atMs: number): SnapshotIdentity {
  const { id16, externalId, meta, limits } = snapshotIdentity.read(reader);
  return {
    id: `id_${id16}`,
    externalId,
    meta: new JsonText(meta ?? '{}'),
    ratelimits: readLimits(limits, reader, atMs),
  };
}

const linesOf = (text: string): string[] => (text === '' ? [] : text.split('\n'));

/** The ends of the temporary limits follow the limits. */
const readLimits = (limits: readonly Values<typeof limitStruct.fields>[], reader: Reader, atMs: number): Ratelimit[] =>
  limits.map(({ id16, name, ...fields }) => {
    const { switches } = fields;
    const ends = switches & temporarySwitch ? limitEnd.read(reader) : undefined;
    const limit = ratelimitOf(`rl_${id16}`, name, { ...fields, ...switchesOf(switches), ...ends }, atMs);
    return switches & planSwitch ? { ...limit, ofPlan: true } : limit;
  });

/**
 * A copy with flat strings. V8 stores joined strings as trees, and reading these for each response took 3 % of the
 * time.
 */
const flattened = ({
  apiId,
  externalId,
  planId,
  fields,
  keyLimits,
  identityLimits,
  ...ranges
}: SnapshotText): SnapshotText => ({
  apiId: copied(apiId),
  externalId: externalId && copied(externalId),
  planId: planId && copied(planId),
  fields: copied(fields),
  keyLimits: keyLimits.map(copiedLimit),
  identityLimits: identityLimits.map(copiedLimit),
  ...ranges,
});
const copied = (text: string): string => Buffer.from(text).toString();
const copiedLimit = ({ name, text, ...limit }: PrintedLimit) => ({ name: copied(name), text: copied(text), ...limit });

/** Memory of a snapshot, at most: the bytes of each string in UTF-8, and a fixed overhead. */
const bytesOf = ({ apiId, externalId = '', fields, keyLimits, identityLimits }: SnapshotText): number =>
  [apiId, externalId, fields, ...[...keyLimits, ...identityLimits].flatMap(({ name, text }) => [name, text])].reduce(
    (sum, text) => sum + 40 + Buffer.byteLength(text),
    0,
  );

/**
 * The weight of a request in addition to that of a plain one. Each 16 KB of its snapshot weigh 1, because this process
 * writes them to the response, and a key may have megabytes of permissions. Each eight limits weigh 1, because Redis
 * checks them.
 */
const extraWeightOf = ({ keyLimits, identityLimits }: SnapshotText, bytes: number): number =>
  Math.floor(bytes / 16_384) + Math.floor((keyLimits.length + identityLimits.length) / 8);
