// Creates the records of an import, workspace by workspace and kind by kind.

import { timeOfId } from '../domain/keyString.ts';
import { dayMs } from '../domain/time.ts';
import { sharedCreditsSince } from '../operations/identities/sharedCredits.ts';
import { holdsSince } from '../operations/keys/holdFields.ts';
import { keyFieldsSince, movedCreditsSince } from '../operations/keys/keyFields.ts';
import { concurrencySince, hasConcurrency, hasEnd, temporarySince, tooOld } from '../operations/rules.ts';
import type { CreateKeys, NewKey } from '../records/keys.ts';
import { cliActor } from '../records/rootKeys.ts';
import type { Store } from '../store.ts';
import { version } from '../version.ts';
import { costOfLimits, costOfRootKey, costOfWindow, PermissionCosts, stepsByCost } from './importSteps.ts';
import type { LineRecord } from './keyLines.ts';
import { type Counts, fileFormat, type Kind, kinds, markers, newCounts } from './lineKinds.ts';
import type { End, Header } from './workspaceLines.ts';
import { workspaceOf } from './workspaces.ts';

type NewField = readonly [field: string, since: number, has: (key: NewKey) => boolean];
/** Fields that data of an earlier version cannot store: since which version it can, and whether a key has one. */
const newFields: readonly NewField[] = [
  ...Object.entries(keyFieldsSince).map(
    ([name, since]): NewField => [name, since, (key) => key[name as keyof typeof keyFieldsSince] !== undefined],
  ),
  ['ratelimits', concurrencySince, ({ ratelimits }) => hasConcurrency(ratelimits)],
  ['ratelimits', temporarySince, ({ ratelimits }) => hasEnd(ratelimits)],
  ['drawsOn', movedCreditsSince, ({ drawsOn }) => drawsOn !== undefined],
  ['credits.debt', holdsSince, ({ remaining = 0 }) => remaining < 0],
];

interface ImporterOptions {
  workspace?: string | undefined;
  api?: string | undefined;
  dryRun: boolean;
  recordsMax: number;
  /** Kinds that are left out. */
  omitted: ReadonlySet<Kind>;
  /** Kinds that are imported into workspaces that existed, too. */
  added: ReadonlySet<Kind>;
}

export interface Line {
  number: number;
  /** Undefined if the line is too long. */
  bytes: Buffer | undefined;
}

type AnyKind = LineRecord['kind'];
type RecordOf<K extends AnyKind> = Extract<LineRecord, { kind: K }>;
/** A record and its line. */
export type Entry<K extends AnyKind = AnyKind> = RecordOf<K> & { line: Line };

export interface Rejection {
  line: Line;
  errors: { field: string; message: string }[];
}

const actor = { ...cliActor, operation: 'cli.import' };
/** Of records of a workspace whose audit log is imported, too. */
const quietActor = { ...actor, isQuiet: true } as const;

/** At most this many different wildcards are counted. */
const wildcardsMax = 100;
/** How far an id may be ahead of the clock of Redis: the clock of the other Redis may be ahead. */
const aheadMs = dayMs;

/** Kinds whose records count for RECORDS_MAX. */
const recordKinds: readonly Kind[] = [
  'permission',
  'role',
  'api',
  'identity',
  'namespace',
  'override',
  'key',
  'deletedKey',
  'rootKey',
];
/** With --api, only these are imported. */
const kindsIntoApi: ReadonlySet<AnyKind> = new Set(['permission', 'role', 'identity', 'key']);

/** The workspace into which lines are imported. */
interface Target {
  workspaceId: string;
  /** The import has created it, so it may get root keys and audit events. */
  isNew: boolean;
  /** The file is of another workspace. */
  isOther: boolean;
  /** Records were rejected because they may be of another workspace. Then the import does not end. */
  isIncomplete: boolean;
  created: Counts;
}

export class Importer {
  readonly created = newCounts();
  readonly existed = newCounts();
  /** Records that are not imported into a workspace that existed. */
  readonly kept = newCounts();
  /** Created keys that another system issued. */
  unknownLength = 0;
  /**
   * Their permissions that mean more here, and those that mean the same but look as if they did not: with the number of
   * keys.
   */
  readonly wildcards = new Map<string, number>();
  /** The same permissions of created roles, with the number of roles. Files of Tollgate have them, too. */
  readonly wildcardsOfRoles = new Map<string, number>();
  /** By how many records a dry run exceeds the maximum of a workspace. */
  excess = 0;
  /** What is wrong with the file as a whole. */
  fault: string | undefined;
  /** Lines that could not be read, as the caller counts them. */
  unread = 0;
  /** Created root keys that may do everything. */
  #admins = 0;
  /** Root keys of another workspace, which are of no use. */
  #foreignRootKeys = 0;
  readonly #store: Store;
  readonly #options: ImporterOptions;
  #nowMs = 0;
  #header: Header | undefined;
  #end: End | undefined;
  #isBegun = false;
  /** Number of a line that was not accepted and may begin a workspace: records are rejected until the next place. */
  #lostAt: number | undefined;
  #target: Target | undefined;
  /** Lines of records by kind. */
  readonly #read = newCounts();
  readonly #permissionCosts = new PermissionCosts();
  /** In a dry run: names of roles, ids of APIs and names of namespaces that earlier lines would have created. */
  readonly #newRoles = new Set<string>();
  readonly #newApis = new Set<string>();
  readonly #newNamespaces = new Map<string, string>();
  /** The API and namespace of the last usage, and whether they exist. */
  #knownApi = { apiId: '', exists: false };
  #knownNamespace: { namespaceId: string; id16: string | undefined } = { namespaceId: '', id16: undefined };
  /** Ids in the file of namespaces whose name existed, and their ids here. */
  readonly #otherIds = new Map<string, string>();

  constructor(store: Store, options: ImporterOptions) {
    this.#store = store;
    this.#options = options;
  }

  async open() {
    const { workspace, api } = this.#options;
    this.#nowMs = await this.#store.currentMs();
    if (workspace !== undefined) this.#target = targetOf(workspace, false);
    if (api === undefined) return;
    const { workspaceId } = await this.#targetOrOnly();
    if (!(await this.#store.apis.find(workspaceId, api))) throw new Error(`There is no API ${api} in ${workspaceId}.`);
  }

  /** `unread` are the lines among the entries that could not be read, in ascending order. */
  async create(entries: readonly Entry[], unread: readonly Line[] = []): Promise<Rejection[]> {
    const rejections: Rejection[] = [];
    const lost = unread.filter(mayBeginWorkspace);
    let records: Entry<Kind>[] = [];
    const createSoFar = async () => {
      rejections.push(...(await this.#createRecords(records)));
      records = [];
    };
    for (const entry of entries) {
      while (lost[0] && lost[0].number < entry.line.number) {
        await createSoFar();
        this.#lose(lost.shift()!);
      }
      if (isRecord(entry)) {
        if (!this.#end) this.#read[entry.kind]++;
        records.push(entry);
      } else {
        await createSoFar();
        rejections.push(...(await this.#mark(entry)));
      }
      this.#isBegun = true;
    }
    await createSoFar();
    for (const line of lost) this.#lose(line);
    return rejections;
  }

  #lose({ number }: Line) {
    if ((this.#header?.workspaces.length ?? 0) > 1) this.#lostAt ??= number;
  }

  /** Returns why a record here cannot be created: its workspace is not known. */
  #faultOfPlace(): string | undefined {
    if (this.#end) return 'is after the end of the file';
    if (!this.#header || this.#isIntoOne) return undefined;
    if (this.#lostAt !== undefined) {
      if (this.#target) this.#target.isIncomplete = true;
      return `is of an unknown workspace: line ${this.#lostAt} was not accepted, and may begin one`;
    }
    return this.#target ? undefined : 'is before the line of its workspace';
  }

  /** All records are imported into a workspace that the operator names. */
  get #isIntoOne(): boolean {
    return this.#options.workspace !== undefined || this.#options.api !== undefined;
  }

  async end() {
    if (this.#header) this.fault = this.#faultOfFile();
    if (this.fault === undefined) await this.#endWorkspace();
    else await this.#addExcess();
  }

  /** What an operator should know of records that are of a workspace that exists, or give rights. */
  notes(): string[] {
    const lines: string[] = [];
    const { rootKey, auditEvent } = this.kept;
    const number = (count: number) => count.toLocaleString('en');
    if (this.#admins > 0)
      lines.push(
        `${number(this.#admins)} of the root keys may do everything in their workspace, and so may whoever has ` +
          'their strings: import only files that you trust, or leave root keys out with --without root-keys.',
      );
    if (rootKey > 0)
      lines.push(
        `Not imported: ${number(rootKey)} root keys, because the workspace existed before. A root key gives access to ` +
          'it. If you trust the file, --with root-keys imports them.',
      );
    if (this.#foreignRootKeys > 0)
      lines.push(
        `Not imported: ${number(this.#foreignRootKeys)} root keys of another workspace, whose strings name that one.`,
      );
    if (auditEvent > 0)
      lines.push(
        `Not imported: ${number(auditEvent)} audit events, because the workspace existed before and has a log of its own.`,
      );
    return lines;
  }

  /** The same for `--json`. */
  details(): object {
    const { rootKey, auditEvent } = this.kept;
    return {
      ...(this.#admins > 0 && { adminRootKeys: this.#admins }),
      ...(rootKey > 0 && { rootKeysNotImported: rootKey }),
      ...(this.#foreignRootKeys > 0 && { rootKeysOfOtherWorkspace: this.#foreignRootKeys }),
      ...(auditEvent > 0 && { auditEventsNotImported: auditEvent }),
    };
  }

  #faultOfFile(): string | undefined {
    const again =
      'Finish the export with --resume, or take another copy of the file, and run the same command with the complete ' +
      'file. A new export is another one: docs/moving.md#an-import-that-did-not-finish.';
    if (!this.#end)
      return `The file ends early: it has no end line. The export was interrupted, or the file was cut off. ${again}`;
    const expected = Object.values(this.#end.counts).reduce((sum, count) => sum + count, 0);
    const found = Object.values(this.#read).reduce((sum, count) => sum + count, 0) + this.unread;
    if (found === expected) return undefined;
    return `The file is damaged: its end line counts ${expected} records, and it has ${found}. ${again}`;
  }

  /** A line that is no record. */
  async #mark(entry: Entry<'header' | 'position' | 'end'>): Promise<Rejection[]> {
    if (entry.kind === 'position') {
      if (entry.position.workspaceId === this.#target?.workspaceId) this.#lostAt = undefined;
      return [];
    }
    if (this.#end) return [rejection(entry.line, 'kind', 'is after the end of the file')];
    if (entry.kind === 'end') {
      this.#end = entry.end;
      return [];
    }
    if (this.#isBegun) return [rejection(entry.line, 'kind', 'is not the first line of the file')];
    await this.#begin(entry.header);
    return [];
  }

  async #begin(header: Header) {
    const { format, release, workspaces } = header;
    if (format > fileFormat) {
      throw new Error(
        `The file has format ${format} and was written by Tollgate ${release}; this Tollgate (${version}) reads formats ` +
          `up to ${fileFormat}. Import it with that release or a later one.`,
      );
    }
    this.#header = header;
    if (this.#isIntoOne) {
      const option = this.#options.workspace === undefined ? '--api' : '--workspace';
      if (workspaces.length > 1)
        throw new Error(`The file has ${workspaces.length} workspaces. Import it without ${option}.`);
      return;
    }
    const others = (await this.#store.workspaces.ids()).filter((id) => !workspaces.includes(id));
    if (others.length > 0) {
      throw new Error(
        `This Redis is not empty: it has the workspace ${others[0]}, which is not in the file. Import before the first ` +
          'start of the server, into an empty Redis (or another TOLLGATE_DATA_DIR), or into a workspace that exists, ' +
          'with --workspace.',
      );
    }
  }

  async #createRecords(given: readonly Entry<Kind>[]): Promise<Rejection[]> {
    const rejections: Rejection[] = [];
    let of: Entry<Kind>[] = [];
    for (const entry of given) {
      if (entry.kind !== 'workspace') {
        const fault = this.#faultOfPlace();
        if (fault === undefined) of.push(entry);
        else rejections.push(rejection(entry.line, 'kind', fault));
        continue;
      }
      rejections.push(...(await this.#createKinds(of)), ...(await this.#beginWorkspace(entry)));
      of = [];
    }
    rejections.push(...(await this.#createKinds(of)));
    return rejections;
  }

  async #beginWorkspace({ workspace, line }: Entry<'workspace'>): Promise<Rejection[]> {
    const { dryRun } = this.#options;
    if (!this.#header)
      throw new Error(`Line ${line.number} begins a workspace, and the first line of the file is missing or damaged.`);
    if (this.#end) return [rejection(line, 'kind', 'is after the end of the file')];
    if (this.#isIntoOne) {
      if (this.#target) this.#target.isOther = this.#target.workspaceId !== workspace.workspaceId;
      this.existed.workspace++;
      return [];
    }
    const { workspaceId } = workspace;
    if (!this.#header.workspaces.includes(workspaceId)) {
      this.#lostAt = line.number;
      return [rejection(line, 'workspaceId', 'is not in the first line of the file')];
    }
    await this.#endWorkspace();
    this.#lostAt = undefined;
    this.#forgetWorkspace();
    const outcome = await this.#store.workspaces.import({ ...workspace, importId: this.#header.exportId }, dryRun);
    if (outcome === 'unfinished') throw new Error(unfinished(workspaceId));
    this.#target = targetOf(workspaceId, outcome !== 'exists');
    this.#count('workspace', outcome === 'created');
    return [];
  }

  #forgetWorkspace() {
    const known = [this.#newRoles, this.#newApis, this.#newNamespaces, this.#otherIds, this.#permissionCosts];
    for (const each of known) each.clear();
    this.#knownApi = { apiId: '', exists: false };
    this.#knownNamespace = { namespaceId: '', id16: undefined };
  }

  /** Ends the import of a workspace with one event for all of its records. */
  async #endWorkspace() {
    await this.#addExcess();
    const target = this.#target;
    if (!target?.isNew || target.isIncomplete || this.#options.dryRun) return;
    const counts = kinds
      .filter((kind) => target.created[kind] > 0)
      .map((kind): [string, number] => [`${kind}Count`, target.created[kind]]);
    await this.#store.workspaces.endImport(target.workspaceId, counts, actor);
    target.isNew = false;
  }

  async #addExcess() {
    const { dryRun, recordsMax } = this.#options;
    if (!dryRun || recordsMax === 0 || !this.#target) return;
    const { workspaceId, created } = this.#target;
    const wanted = recordKinds.reduce((sum, kind) => sum + created[kind], await this.#store.sweep.count(workspaceId));
    this.excess += Math.max(0, wanted - recordsMax);
  }

  async #targetOrOnly(): Promise<Target> {
    this.#target ??= targetOf(await workspaceOf(this.#store, undefined), false);
    return this.#target;
  }

  async #createKinds(given: readonly Entry<Kind>[]): Promise<Rejection[]> {
    const { api, omitted } = this.#options;
    const wanted = given.filter(({ kind }) => !omitted.has(kind) && (api === undefined || kindsIntoApi.has(kind)));
    if (wanted.length === 0) return [];
    const target = await this.#targetOrOnly();
    const rejections: Rejection[] = [];
    const entries = await this.#withoutFuture(target, wanted, rejections);
    const ofKind = <K extends Kind>(kind: K) => entries.filter((entry): entry is Entry<K> => entry.kind === kind);
    const add = (some: Rejection[]) => rejections.push(...some);
    await this.#createAuditEvents(target, ofKind('auditEvent'));
    await Promise.all(ofKind('permission').map((entry) => this.#createPermission(target, entry)));
    await Promise.all(ofKind('role').map((entry) => this.#createRole(target, entry)));
    for (const entry of ofKind('api')) add(await this.#createApi(target, entry));
    add(await this.#createIdentities(target, ofKind('identity')));
    for (const entry of ofKind('namespace')) add(await this.#createNamespace(target, entry));
    for (const entry of ofKind('override')) add(await this.#createOverride(target, entry));
    await this.#storeWindows(target, ofKind('window'));
    for (const kind of ['apiUsage', 'tagUsage'] as const)
      for (const entry of ofKind(kind)) add(await this.#storeApiUsage(target, entry));
    for (const kind of ['namespaceUsage', 'identifierUsage'] as const)
      for (const entry of ofKind(kind)) add(await this.#storeNamespaceUsage(target, entry));
    for (const { kind, ...rows } of ofKind('refusals'))
      this.#count(kind, await this.#store.usageImport.refusals(target.workspaceId, rows, this.#options.dryRun));
    for (const [apiId, some] of byApi(ofKind('keyUsage'))) add(await this.#storeKeyUsage(target, apiId, some));
    for (const kind of ['key', 'deletedKey'] as const)
      for (const [apiId, some] of byApi(ofKind(kind))) add(await this.#createKeys(target, kind, apiId, some));
    add(await this.#createRootKeys(target, ofKind('rootKey')));
    return rejections;
  }

  /**
   * Rejects counts and events of a time after now, and lets new ids follow those of the file. An id of a far time was
   * not made by a Tollgate, and is only an id.
   */
  async #withoutFuture(
    { workspaceId }: Target,
    entries: readonly Entry<Kind>[],
    rejections: Rejection[],
  ): Promise<Entry<Kind>[]> {
    const latest = this.#nowMs + aheadMs;
    let last = 0;
    const kept = entries.filter((entry) => {
      const time = timeOf(entry);
      if (time !== undefined && !time.isOfId && time.ms > latest) {
        rejections.push(rejection(entry.line, time.field, 'is of a time in the future'));
        return false;
      }
      if (time?.isOfId && time.ms <= latest) last = Math.max(last, time.ms);
      return true;
    });
    if (last > this.#nowMs && !this.#options.dryRun) await this.#store.workspaces.advance(workspaceId, last);
    return kept;
  }

  #noteNew({ byteLength, permissions = [] }: RecordOf<'key'>['key']) {
    if (byteLength !== undefined) return;
    this.unknownLength++;
    noteWildcards(this.wildcards, permissions);
  }

  #count(kind: Kind, isNew: boolean) {
    (isNew ? this.created : this.existed)[kind]++;
    if (isNew && this.#target) this.#target.created[kind]++;
  }

  async #createAuditEvents({ workspaceId, isNew }: Target, entries: readonly Entry<'auditEvent'>[]) {
    if (entries.length === 0) return;
    if (!isNew) {
      this.kept.auditEvent += entries.length;
      return;
    }
    const events = entries.map(({ event }) => event);
    const created = await this.#store.audit.import(workspaceId, events, this.#options.dryRun);
    for (let at = 0; at < entries.length; at++) this.#count('auditEvent', at < created);
  }

  async #createPermission(target: Target, { permission }: Entry<'permission'>) {
    const { workspaceId } = target;
    const isNew = this.#options.dryRun
      ? !(await this.#store.permissions.find(workspaceId, permission.slug))
      : (await this.#store.permissions.create(workspaceId, permission, actorFor(target))) !== undefined;
    this.#count('permission', isNew);
  }

  async #createRole(target: Target, { role }: Entry<'role'>) {
    const { workspaceId } = target;
    const { dryRun } = this.#options;
    const isNew = dryRun
      ? !(await this.#store.roles.find(workspaceId, role.name))
      : 'roleId' in (await this.#store.roles.create(workspaceId, role, true, actorFor(target)));
    if (dryRun && isNew) this.#newRoles.add(role.name);
    if (isNew) noteWildcards(this.wildcardsOfRoles, role.permissions);
    this.#count('role', isNew);
  }

  async #createApi(target: Target, { api, line }: Entry<'api'>): Promise<Rejection[]> {
    const { workspaceId } = target;
    const { dryRun } = this.#options;
    const isThere = (await this.#store.apis.find(workspaceId, api.apiId)) !== undefined;
    if (dryRun && !isThere) this.#newApis.add(api.apiId);
    if (!isThere && !dryRun && !(await this.#store.apis.createAgain(workspaceId, api, actorFor(target))))
      return [
        rejection(
          line,
          'apiId',
          'is that of a deleted API: restore it with `tollgate api restore`, or retry when it was removed',
        ),
      ];
    this.#knownApi = { apiId: api.apiId, exists: true };
    this.#count('api', !isThere);
    return [];
  }

  async #createIdentities(target: Target, entries: readonly Entry<'identity'>[]): Promise<Rejection[]> {
    const { workspaceId } = target;
    const rejections: Rejection[] = [];
    const ids = new Set<string>();
    const distinct = new Map<string, RecordOf<'identity'>['identity']>();
    const tooOldFor = {
      ratelimits: tooOld(this.#store, Math.max(concurrencySince, temporarySince), 'ratelimits'),
      credits: tooOld(this.#store, sharedCreditsSince, 'credits'),
    };
    for (const { identity, line } of entries) {
      if (tooOldFor.ratelimits !== undefined && (hasConcurrency(identity.ratelimits) || hasEnd(identity.ratelimits)))
        rejections.push(rejection(line, 'ratelimits', tooOldFor.ratelimits));
      else if (tooOldFor.credits !== undefined && identity.credits)
        rejections.push(rejection(line, 'credits', tooOldFor.credits));
      else if (distinct.has(identity.externalId)) this.existed.identity++;
      else if (identity.keptId !== undefined && ids.has(identity.keptId))
        rejections.push(rejection(line, 'identityId', 'is the id of another identity'));
      else {
        distinct.set(identity.externalId, identity);
        if (identity.keptId !== undefined) ids.add(identity.keptId);
      }
    }
    for (const identities of stepsByCost([...distinct.values()], ({ ratelimits }) => costOfLimits(ratelimits))) {
      const created = this.#options.dryRun
        ? await Promise.all(
            identities.map(async ({ externalId }) =>
              (await this.#store.identities.find(workspaceId, externalId)) ? null : externalId,
            ),
          )
        : await this.#store.identities.create(workspaceId, identities, actorFor(target));
      // The end of a limit in a line may be at any time.
      if ('refused' in created) throw new Error(`An imported limit was refused: ${created.refused}.`);
      for (const id of created) this.#count('identity', id !== null);
    }
    return rejections;
  }

  async #createNamespace(target: Target, { namespace, line }: Entry<'namespace'>): Promise<Rejection[]> {
    const { workspaceId } = target;
    const { overrides, namespaces } = this.#store;
    const existing = await overrides.findNamespace(workspaceId, namespace.name);
    if (existing) {
      if (existing.id !== namespace.id) this.#otherIds.set(namespace.id, existing.id);
    } else if (await overrides.findNamespace(workspaceId, namespace.id)) {
      return [rejection(line, 'namespaceId', 'is the id of another namespace')];
    } else if (this.#options.dryRun) this.#newNamespaces.set(namespace.id, namespace.name);
    else await namespaces.createAgain(workspaceId, namespace, actorFor(target));
    this.#count('namespace', !existing);
    return [];
  }

  async #createOverride(target: Target, { override, line }: Entry<'override'>): Promise<Rejection[]> {
    const { workspaceId } = target;
    const { namespace, identifier, limit, duration, overrideId, createdAt, until, former } = override;
    const problem = until !== undefined && tooOld(this.#store, temporarySince, 'until');
    if (problem) return [rejection(line, 'until', problem)];
    if (this.#options.dryRun) {
      const hasEnded = until !== undefined && until <= this.#nowMs && !former;
      const found = await this.#store.overrides.find(workspaceId, namespace, identifier);
      this.#count('override', !found && !hasEnded);
      return [];
    }
    const keptId = overrideId.slice('rlor_'.length);
    const given = { namespace, identifier, limit, durationMs: duration, untilMs: until, former };
    const result = await this.#store.overrides.set(
      workspaceId,
      { ...given, keptId, createdMs: createdAt },
      actorFor(target),
    );
    // One that has ended since the export is as one that exists: there is nothing to create.
    if ('refused' in result && result.refused !== 'exists' && result.refused !== 'ended') {
      const isUnknown = result.refused === 'namespace_not_found';
      return [
        isUnknown
          ? rejection(line, 'namespace', 'must be the name of a namespace')
          : rejection(line, 'identifier', 'is one wildcard too many for its namespace or workspace'),
      ];
    }
    this.#count('override', !('refused' in result));
    return [];
  }

  async #storeWindows({ workspaceId }: Target, entries: readonly Entry<'window'>[]) {
    if (entries.length === 0) return;
    const windows = entries.map(({ window: { owner, ...window } }) => {
      const [prefix] = owner.split('_', 1);
      const id = this.#otherIds.get(owner) ?? owner;
      return { ...window, owner: id.slice(prefix!.length + 1), isNamespace: prefix === 'rlns' };
    });
    for (const some of stepsByCost(windows, costOfWindow)) {
      const stored = await this.#store.windows.import(workspaceId, some, this.#options.dryRun);
      for (const isNew of stored) this.#count('window', isNew);
    }
  }

  async #storeApiUsage(target: Target, entry: Entry<'apiUsage' | 'tagUsage'>): Promise<Rejection[]> {
    const { kind, apiId, line } = entry;
    const { workspaceId } = target;
    if (!(await this.#hasApi(target, apiId))) return [rejection(line, 'apiId', noSuchApi)];
    const { dryRun } = this.#options;
    const api8 = apiId.slice(-8);
    const importId = this.#header?.exportId ?? '';
    const { usageImport } = this.#store;
    if (entry.kind === 'apiUsage') {
      const given = { of: 'api' as const, id: api8, ...entry.usage, importId };
      this.#count(kind, await usageImport.total(workspaceId, given, dryRun));
      return [];
    }
    const outcome = await usageImport.tags(workspaceId, api8, { ...entry.of, importId }, entry.counts, dryRun);
    return this.#countPart(entry, outcome);
  }

  async #storeNamespaceUsage(target: Target, entry: Entry<'namespaceUsage' | 'identifierUsage'>): Promise<Rejection[]> {
    const id16 = await this.#namespaceOf(target, entry.namespaceId);
    if (id16 === undefined) return [rejection(entry.line, 'namespaceId', 'There is no such namespace.')];
    const { workspaceId } = target;
    const { dryRun } = this.#options;
    const importId = this.#header?.exportId ?? '';
    const { usageImport } = this.#store;
    if (entry.kind === 'namespaceUsage') {
      const given = { of: 'namespace' as const, id: id16, ...entry.usage, importId };
      this.#count(entry.kind, await usageImport.total(workspaceId, given, dryRun));
      return [];
    }
    const outcome = await usageImport.identifiers(workspaceId, id16, { ...entry.of, importId }, entry.counts, dryRun);
    return this.#countPart(entry, outcome);
  }

  async #storeKeyUsage(target: Target, apiId: string, entries: readonly Entry<'keyUsage'>[]): Promise<Rejection[]> {
    if (!(await this.#hasApi(target, apiId))) return entries.map(({ line }) => rejection(line, 'apiId', noSuchApi));
    const usage = entries.map((entry) => entry.usage);
    const stored = await this.#store.usageImport.keys(target.workspaceId, apiId.slice(-8), usage, this.#options.dryRun);
    return stored.flatMap((outcome, at) => this.#countPart(entries[at]!, outcome));
  }

  #countPart({ kind, line }: Entry<Kind>, outcome: 'stored' | 'exists' | 'misplaced'): Rejection[] {
    if (outcome === 'misplaced') return [rejection(line, 'part', 'is of counts whose line before it was not accepted')];
    this.#count(kind, outcome === 'stored');
    return [];
  }

  async #hasApi({ workspaceId }: Target, apiId: string): Promise<boolean> {
    if (this.#knownApi.apiId !== apiId) {
      const exists = this.#newApis.has(apiId) || (await this.#store.apis.find(workspaceId, apiId)) !== undefined;
      this.#knownApi = { apiId, exists };
    }
    return this.#knownApi.exists;
  }

  /** The id here of a namespace, without prefix. */
  async #namespaceOf({ workspaceId }: Target, namespaceId: string): Promise<string | undefined> {
    if (this.#knownNamespace.namespaceId !== namespaceId) {
      const id = this.#otherIds.get(namespaceId) ?? namespaceId;
      const exists =
        this.#newNamespaces.has(id) || (await this.#store.overrides.findNamespace(workspaceId, id)) !== undefined;
      this.#knownNamespace = { namespaceId, id16: exists ? id.slice('rlns_'.length) : undefined };
    }
    return this.#knownNamespace.id16;
  }

  async #createKeys(
    target: Target,
    kind: 'key' | 'deletedKey',
    apiId: string,
    entries: readonly Entry<'key' | 'deletedKey'>[],
  ): Promise<Rejection[]> {
    const { distinct, rejections } = this.#withoutRepeated(kind, entries);
    if (this.#options.dryRun && this.#newApis.has(apiId)) {
      for (const { key } of distinct) {
        this.#count(kind, true);
        this.#noteNew(key);
      }
      return rejections;
    }

    let left = distinct;
    for (const [field, since, has] of newFields) {
      const problem = tooOld(this.#store, since, field);
      if (problem === undefined) continue;
      rejections.push(...left.filter(({ key }) => has(key)).map(({ line }) => rejection(line, field, problem)));
      left = left.filter(({ key }) => !has(key));
    }
    const costOf = ({ key: { ratelimits, permissions } }: (typeof distinct)[number]) =>
      costOfLimits(ratelimits) + this.#permissionCosts.of(permissions);
    for (const step of stepsByCost(left, costOf))
      rejections.push(...(await this.#createStep(target, kind, apiId, step)));
    return rejections;
  }

  /**
   * A step is created completely or not at all. If it is refused, the keys at fault are rejected and the rest is tried
   * again.
   */
  async #createStep(
    target: Target,
    kind: 'key' | 'deletedKey',
    apiId: string,
    step: readonly Entry<'key' | 'deletedKey'>[],
  ): Promise<Rejection[]> {
    const { workspaceId } = target;
    const { dryRun } = this.#options;
    const rejections: Rejection[] = [];
    let left = step;
    while (left.length > 0) {
      const request: CreateKeys = {
        apiId,
        keys: left.map(({ key }) => this.#withoutNewRoles(key)),
        mayCreatePermissions: true,
        dryRun,
      };
      const result = await this.#store.keys.create(workspaceId, request, actorFor(target));
      if ('created' in result) {
        for (const [index, keyId] of result.created.entries()) {
          this.#count(kind, keyId !== null);
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
  #withoutRepeated(kind: 'key' | 'deletedKey', entries: readonly Entry<'key' | 'deletedKey'>[]) {
    const rejections: Rejection[] = [];
    const byDigest = new Map<string, Entry<'key' | 'deletedKey'>>();
    const keptIds = new Set<string>();
    for (const entry of entries) {
      const { digest, keptId } = entry.key;
      const name = digest.toString('latin1');
      if (byDigest.has(name)) this.#count(kind, false);
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

  /**
   * A root key gives its holder access. So a file creates root keys only in a workspace that it creates itself, or if
   * the operator asks for it.
   */
  async #createRootKeys(target: Target, entries: readonly Entry<'rootKey'>[]): Promise<Rejection[]> {
    if (entries.length === 0) return [];
    const rejections: Rejection[] = [];
    const seen = new Set<string>();
    const distinct = entries.filter(({ rootKey, line }) => {
      const names = [rootKey.rootKeyId, rootKey.digest.toString('latin1')];
      const isRepeated = names.some((name) => seen.has(name));
      for (const name of names) seen.add(name);
      if (isRepeated) rejections.push(rejection(line, 'rootKeyId', idOfRootKeyTaken));
      return !isRepeated;
    });
    if (target.isOther) {
      this.#foreignRootKeys += distinct.length;
      return rejections;
    }
    for (const step of stepsByCost(distinct, ({ rootKey }) => costOfRootKey(rootKey.permissions)))
      rejections.push(...(await this.#createRootKeysOf(target, step)));
    return rejections;
  }

  async #createRootKeysOf(target: Target, step: readonly Entry<'rootKey'>[]): Promise<Rejection[]> {
    const rejections: Rejection[] = [];
    const isLeftOut = !target.isNew && !this.#options.added.has('rootKey');
    const rootKeys = step.map(({ rootKey }) => rootKey);
    const isDryRun = this.#options.dryRun || isLeftOut;
    const outcomes = await this.#store.rootKeys.import(target.workspaceId, rootKeys, isDryRun, actorFor(target));
    for (const [index, outcome] of outcomes.entries()) {
      const { rootKey, line } = step[index]!;
      if (outcome === 'id_taken') rejections.push(rejection(line, 'rootKeyId', idOfRootKeyTaken));
      else if (outcome === 'created' && isLeftOut) this.kept.rootKey++;
      else this.#count('rootKey', outcome === 'created');
      if (outcome === 'created' && !isLeftOut && rootKey.permissions.includes('*')) this.#admins++;
    }
    return rejections;
  }
}

const targetOf = (workspaceId: string, isNew: boolean): Target => ({
  workspaceId,
  isNew,
  isOther: false,
  isIncomplete: false,
  created: newCounts(),
});

const actorFor = ({ isNew }: Target) => (isNew ? quietActor : actor);

/** The lines of an export begin with their kind. */
const kindBefore = /^\{"kind":"(\w+)"/;
/** False of lines that are too long for that. */
const mayBeginWorkspace = ({ bytes }: Line): boolean => {
  if (!bytes) return false;
  const kind = kindBefore.exec(bytes.toString('latin1', 0, 40))?.[1] as Kind | undefined;
  return kind === undefined || kind === 'workspace' || !kinds.includes(kind);
};

const isRecord = (entry: Entry): entry is Entry<Kind> => !(markers as readonly string[]).includes(entry.kind);

function byApi<E extends { apiId: string }>(entries: readonly E[]): Map<string, E[]> {
  const found = new Map<string, E[]>();
  for (const entry of entries) {
    const others = found.get(entry.apiId);
    if (others) others.push(entry);
    else found.set(entry.apiId, [entry]);
  }
  return found;
}

/** The time in the id of a record, or of a count. */
function timeOf(entry: Entry<Kind>): { ms: number; field: string; isOfId: boolean } | undefined {
  const of = (id: string | undefined, field: string) =>
    id === undefined ? undefined : { ms: timeOfId(id), field, isOfId: true };
  const day = (ms: number, field = 'day') => ({ ms, field, isOfId: false });
  switch (entry.kind) {
    case 'permission':
      return of(entry.permission.keptId, 'permissionId');
    case 'role':
      return of(entry.role.keptId, 'roleId');
    case 'api':
      return of(entry.api.apiId.slice('api_'.length), 'apiId');
    case 'identity':
      return of(entry.identity.keptId, 'identityId');
    case 'namespace':
      return of(entry.namespace.id.slice('rlns_'.length), 'namespaceId');
    case 'override':
      return of(entry.override.overrideId.slice('rlor_'.length), 'overrideId');
    case 'key':
    case 'deletedKey':
      return of(entry.key.keptId?.slice('key_'.length), 'keyId');
    case 'rootKey':
      return of(entry.rootKey.rootKeyId.slice('root_'.length), 'rootKeyId');
    case 'auditEvent':
      return day(Number(entry.event.id.split('-')[0]), 'eventId');
    case 'apiUsage':
    case 'namespaceUsage':
      return day(entry.usage.day * dayMs);
    case 'tagUsage':
    case 'identifierUsage':
      return day(entry.of.day * dayMs);
    case 'keyUsage':
      return day(Math.max(0, ...entry.usage.days.slice(-1).map((each) => each.day * dayMs)), 'days');
    case 'refusals':
      return day((entry.hour * dayMs) / 24, 'hour');
    case 'window':
    case 'workspace':
      return undefined;
  }
}

function noteWildcards(wildcards: Map<string, number>, permissions: readonly string[]) {
  for (const slug of permissions) {
    const isNoted = slug === '*' || slug.endsWith('.*');
    if (isNoted && (wildcards.has(slug) || wildcards.size < wildcardsMax))
      wildcards.set(slug, (wildcards.get(slug) ?? 0) + 1);
  }
}

const unfinished = (workspaceId: string) =>
  `The workspace ${workspaceId} was created by an import of another export, which did not finish. Import that file ` +
  `again, or end its import: \`tollgate workspace end-import ${workspaceId}\` keeps what it created, and --discard ` +
  'removes the workspace (docs/moving.md#an-import-that-did-not-finish).';

type Reason = [isRejected: (key: RecordOf<'key'>['key']) => boolean, field: string, message: string];

const idTaken = 'is the id of another key';
const idOfRootKeyTaken = 'is the id or the hash of another root key';
const noSuchApi = 'There is no such API. Import its line first, or pass another API with --api.';

function reasonOf(result: Extract<Awaited<ReturnType<Store['keys']['create']>>, { refused: string }>): Reason {
  const { refused, name } = result;
  const absent = (field: 'roles' | 'permissions', noun: string): Reason => [
    (key) => key[field]?.includes(name) === true,
    field,
    `There is no ${noun} ${JSON.stringify(name)}.`,
  ];
  switch (refused) {
    case 'api_not_found':
      return [() => true, 'apiId', noSuchApi];
    case 'key_id_taken':
      return [(key) => key.keptId === name, 'keyId', idTaken];
    case 'role_not_found':
      return absent('roles', 'role');
    case 'create_permission':
      return absent('permissions', 'permission');
    case 'expired':
    case 'ended':
    case 'too_late':
      // The expiry of a line, and the ends of its limits, may be at any time.
      throw new Error(`An imported key was refused: ${refused}.`);
  }
}

const rejection = (line: Line, field: string, message: string): Rejection => ({ line, errors: [{ field, message }] });
