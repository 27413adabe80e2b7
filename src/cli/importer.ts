// Creates the records of an import, workspace by workspace and kind by kind.

import { timeOfId } from '../domain/keyString.ts';
import { dayMs } from '../domain/time.ts';
import { sharedCreditsSince } from '../operations/identities/sharedCredits.ts';
import { holdsSince } from '../operations/keys/holdFields.ts';
import { keyFieldsSince, movedCreditsSince } from '../operations/keys/keyFields.ts';
import {
  concurrencySince,
  hasConcurrency,
  hasEnd,
  hasQuota,
  plansSince,
  quotasSince,
  temporarySince,
  tooOld,
} from '../operations/rules.ts';
import { planLimitsMax } from '../operations/schemas.ts';
import type { CreateKeys, NewKey } from '../records/keys.ts';
import { cliActor } from '../records/rootKeys.ts';
import type { Store } from '../store.ts';
import type { DayTotals } from '../usage/exported.ts';
import { version } from '../version.ts';
import { costOfLimits, costOfRootKey, costOfWindow, PermissionCosts, stepsByCost } from './importSteps.ts';
import type { AnyKind, RecordOf } from './keyLines.ts';
import { type Counts, fileFormat, type Kind, kindRows, kinds, markers, newCounts } from './lineKinds.ts';
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
  ['ratelimits', quotasSince, ({ ratelimits }) => hasQuota(ratelimits)],
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

/** A record and its line. */
export type Entry<K extends AnyKind = AnyKind> = { [Each in K]: { kind: Each; record: RecordOf<Each>; line: Line } }[K];

export interface Rejection {
  line: Line;
  errors: { field: string; message: string }[];
}

const actor = { ...cliActor, operation: 'cli.import' };
/** The actor of records of a workspace whose audit log is imported, too. */
const quietActor = { ...actor, isQuiet: true } as const;

/** At most this many different wildcards are counted. */
const wildcardsMax = 100;
/** How far an id may be ahead of the clock of Redis: the clock of the other Redis may be ahead. */
const aheadMs = dayMs;

type Fault = readonly [field: string, message: string];
/** The outcome of a record: the importer counts it under that name, or rejects it. */
type Outcome = 'created' | 'existed' | 'kept' | 'foreign' | Fault;
const existence = (isNew: boolean) => (isNew ? 'created' : 'existed');

type CreatedKind = Exclude<Kind, 'workspace'>;
const createdKinds = kinds.filter((kind): kind is CreatedKind => kind !== 'workspace');

interface Creator<Read> {
  /** The time in the id of a record, or of counts. */
  time?(record: Read): Time | undefined;
  /** Why this server cannot store it. */
  fault?(record: Read): Fault | undefined;
  /** Names that must be unique, and the outcome of a second record with one. */
  distinct?(record: Read): readonly (readonly [name: string | undefined, outcome: Outcome])[];
  /** The names of a second record are taken, too. */
  takesAllNames?: true;
  /** Estimated time in Redis. Only records of one API and of bounded cost are created together. */
  cost?(record: Read): number;
  /** Resolves with an outcome for each record. */
  create(target: Target, records: readonly Read[]): Promise<Outcome[]>;
}

/** Creates records one after the other. */
const each =
  <Read>(create: (target: Target, record: Read) => Promise<Outcome>) =>
  async (target: Target, records: readonly Read[]): Promise<Outcome[]> => {
    const outcomes: Outcome[] = [];
    for (const record of records) outcomes.push(await create(target, record));
    return outcomes;
  };

interface Time {
  ms: number;
  field: string;
  isOfId: boolean;
}
const ofId = (field: string, id: string | undefined): Time | undefined =>
  id === undefined ? undefined : { ms: timeOfId(id), field, isOfId: true };
const ofCounts = (field: string, ms: number): Time => ({ ms, field, isOfId: false });

/** The workspace into which lines are imported. */
interface Target {
  workspaceId: string;
  /** The import has created it, so it may get root keys and audit events. */
  isNew: boolean;
  /** The file is of another workspace. */
  isOther: boolean;
  /** Some records were rejected for an unknown workspace: the import stays unfinished. */
  isIncomplete: boolean;
  created: Counts;
}

export class Importer {
  readonly created = newCounts();
  readonly existed = newCounts();
  /** Records that are not imported into a workspace that existed. */
  readonly kept = newCounts();
  /** Root keys of another workspace, which are of no use. */
  readonly foreign = newCounts();
  /** Created keys that another system issued. */
  unknownLength = 0;
  /** Wildcard permissions of created keys, which may mean more here, with the number of keys. */
  readonly wildcards = new Map<string, number>();
  /** The same permissions of created roles, with the number of roles. Files of Tollgate have them, too. */
  readonly wildcardsOfRoles = new Map<string, number>();
  /** By how many records a dry run exceeds the maximum of a workspace. */
  excess = 0;
  /** The fault of the file as a whole. */
  fault: string | undefined;
  /** Lines that could not be read, as the caller counts them. */
  unread = 0;
  /** Created root keys that may do everything. */
  #admins = 0;
  readonly #store: Store;
  readonly #options: ImporterOptions;
  #nowMs = 0;
  #header: Header | undefined;
  #end: End | undefined;
  #hasLines = false;
  /** Number of a line that was not accepted and may begin a workspace: records are rejected until the next place. */
  #unknownSince: number | undefined;
  #target: Target | undefined;
  /** Lines of records by kind. */
  readonly #read = newCounts();
  readonly #permissionCosts = new PermissionCosts();
  /** In a dry run: names of roles, plans, APIs (ids) and namespaces that earlier lines would have created. */
  readonly #newRoles = new Set<string>();
  readonly #newPlans = new Set<string>();
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
        this.#loseWorkspace(lost.shift()!);
      }
      if (isRecord(entry)) {
        if (!this.#end) this.#read[entry.kind]++;
        records.push(entry);
      } else {
        await createSoFar();
        rejections.push(...(await this.#readMarker(entry)));
      }
      this.#hasLines = true;
    }
    await createSoFar();
    for (const line of lost) this.#loseWorkspace(line);
    return rejections;
  }

  #loseWorkspace({ number }: Line) {
    if ((this.#header?.workspaces.length ?? 0) > 1) this.#unknownSince ??= number;
  }

  /** Returns why a record here cannot be created: its workspace is not known. */
  #faultOfPlace(): string | undefined {
    if (this.#end) return 'is after the end of the file';
    if (!this.#header || this.#isIntoOne) return undefined;
    if (this.#unknownSince !== undefined) {
      if (this.#target) this.#target.isIncomplete = true;
      return `is of an unknown workspace: line ${this.#unknownSince} was not accepted, and may begin one`;
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

  /** Warnings about records of a workspace that exists, and about records that give rights. */
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
    if (this.foreign.rootKey > 0)
      lines.push(
        `Not imported: ${number(this.foreign.rootKey)} root keys of another workspace, whose strings name that one.`,
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
      ...(this.foreign.rootKey > 0 && { rootKeysOfOtherWorkspace: this.foreign.rootKey }),
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
  async #readMarker(entry: Entry<'header' | 'position' | 'end'>): Promise<Rejection[]> {
    if (entry.kind === 'position') {
      if (entry.record.workspaceId === this.#target?.workspaceId) this.#unknownSince = undefined;
      return [];
    }
    if (this.#end) return [rejection(entry.line, 'kind', 'is after the end of the file')];
    if (entry.kind === 'end') {
      this.#end = entry.record;
      return [];
    }
    if (this.#hasLines) return [rejection(entry.line, 'kind', 'is not the first line of the file')];
    await this.#begin(entry.record);
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

  async #beginWorkspace({ record: workspace, line }: Entry<'workspace'>): Promise<Rejection[]> {
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
      this.#unknownSince = line.number;
      return [rejection(line, 'workspaceId', 'is not in the first line of the file')];
    }
    await this.#endWorkspace();
    this.#unknownSince = undefined;
    this.#forgetWorkspace();
    const outcome = await this.#store.workspaces.import({ ...workspace, importId: this.#header.exportId }, dryRun);
    if (outcome === 'unfinished') throw new Error(unfinished(workspaceId));
    this.#target = targetOf(workspaceId, outcome !== 'exists');
    this.#count(this.#target, 'workspace', existence(outcome === 'created'));
    return [];
  }

  #forgetWorkspace() {
    const known = [
      this.#newRoles,
      this.#newPlans,
      this.#newApis,
      this.#newNamespaces,
      this.#otherIds,
      this.#permissionCosts,
    ];
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
    const counted = kinds.filter((kind) => kindRows[kind].isRecord);
    const wanted = counted.reduce((sum, kind) => sum + created[kind], await this.#store.sweep.count(workspaceId));
    this.excess += Math.max(0, wanted - recordsMax);
  }

  async #targetOrOnly(): Promise<Target> {
    this.#target ??= targetOf(await workspaceOf(this.#store, undefined), false);
    return this.#target;
  }

  async #createKinds(given: readonly Entry<Kind>[]): Promise<Rejection[]> {
    const { api, omitted } = this.#options;
    const wanted = given.filter(({ kind }) => !omitted.has(kind) && (api === undefined || kindRows[kind].intoApi));
    if (wanted.length === 0) return [];
    const target = await this.#targetOrOnly();
    const rejections: Rejection[] = [];
    const entries = await this.#withoutFuture(target, wanted, rejections);
    const settle = ({ kind, line }: Entry<Kind>, outcome: Outcome) => {
      if (typeof outcome === 'object') rejections.push(rejection(line, ...outcome));
      else this.#count(target, kind, outcome);
    };
    for (const kind of createdKinds) {
      const creator = this.#creators[kind] as Creator<unknown>;
      for (const some of byApi(entries.filter((entry) => entry.kind === kind))) {
        const left = acceptedOf(some, creator, settle);
        for (const step of stepsByCost(left, ({ record }) => creator.cost?.(record) ?? 0)) {
          const records = step.map(({ record }) => record);
          const outcomes = await creator.create(target, records);
          for (const [at, entry] of step.entries()) settle(entry, outcomes[at]!);
        }
      }
    }
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
      const { time: timeOf } = this.#creators[entry.kind as CreatedKind] as Creator<unknown>;
      const time = timeOf?.(entry.record);
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

  #count(target: Target, kind: Kind, outcome: Exclude<Outcome, Fault>) {
    this[outcome][kind]++;
    if (outcome === 'created') target.created[kind]++;
  }

  #noteNew({ byteLength, permissions = [] }: NewKey) {
    if (byteLength !== undefined) return;
    this.unknownLength++;
    noteWildcards(this.wildcards, permissions);
  }

  readonly #creators: { readonly [K in CreatedKind]: Creator<RecordOf<K>> } = {
    auditEvent: {
      time: ({ id }) => ofCounts('eventId', Number(id.split('-')[0])),
      create: async ({ workspaceId, isNew }, events) => {
        if (!isNew) return events.map(() => 'kept');
        const created = await this.#store.audit.import(workspaceId, events, this.#options.dryRun);
        return events.map((_, at) => existence(at < created));
      },
    },
    permission: {
      time: ({ keptId }) => ofId('permissionId', keptId),
      create: (target, permissions) => Promise.all(permissions.map((one) => this.#createPermission(target, one))),
    },
    role: {
      time: ({ keptId }) => ofId('roleId', keptId),
      create: (target, roles) => Promise.all(roles.map((role) => this.#createRole(target, role))),
    },
    plan: {
      distinct: ({ planId }) => [[planId, 'existed']],
      fault: ({ ratelimits }) => this.#planFault('planId') ?? this.#quotaFault(ratelimits),
      create: each((target, plan) => this.#createPlan(target, plan)),
    },
    api: {
      time: ({ apiId }) => ofId('apiId', apiId.slice('api_'.length)),
      create: each((target, api) => this.#createApi(target, api)),
    },
    identity: {
      time: ({ keptId }) => ofId('identityId', keptId),
      distinct: ({ externalId, keptId }) => [
        [`externalId ${externalId}`, 'existed'],
        [keptId, ['identityId', 'is the id of another identity']],
      ],
      fault: ({ ratelimits, credits, planId }) => {
        const ofPlan = planId === undefined ? undefined : this.#planFault('planId');
        if (ofPlan !== undefined) return ofPlan;
        if (planId !== undefined && ratelimits.length > planLimitsMax) return tooManyOwn('an identity');
        const ofLimits = tooOld(this.#store, Math.max(concurrencySince, temporarySince), 'ratelimits');
        if (ofLimits !== undefined && (hasConcurrency(ratelimits) || hasEnd(ratelimits)))
          return ['ratelimits', ofLimits];
        const ofCredits = credits && tooOld(this.#store, sharedCreditsSince, 'credits');
        return ofCredits === undefined ? this.#quotaFault(ratelimits) : ['credits', ofCredits];
      },
      cost: ({ ratelimits }) => costOfLimits(ratelimits),
      create: (target, identities) => this.#createIdentities(target, identities),
    },
    namespace: {
      time: ({ id }) => ofId('namespaceId', id.slice('rlns_'.length)),
      create: each((target, namespace) => this.#createNamespace(target, namespace)),
    },
    override: {
      time: ({ overrideId }) => ofId('overrideId', overrideId.slice('rlor_'.length)),
      fault: ({ until, former, ...amount }) => {
        const problem = until === undefined ? undefined : tooOld(this.#store, temporarySince, 'until');
        return problem === undefined ? this.#quotaFault([amount, former ?? {}]) : ['until', problem];
      },
      create: each((target, override) => this.#createOverride(target, override)),
    },
    window: {
      cost: costOfWindow,
      fault: (window) => this.#quotaFault([window]),
      create: async ({ workspaceId }, windows) => {
        const given = windows.map(({ owner, ...window }) => {
          const [prefix] = owner.split('_', 1);
          const id = this.#otherIds.get(owner) ?? owner;
          return { ...window, owner: id.slice(prefix!.length + 1), isNamespace: prefix === 'rlns' };
        });
        return (await this.#store.windows.import(workspaceId, given, this.#options.dryRun)).map(existence);
      },
    },
    apiUsage: {
      time: ({ usage }) => ofCounts('day', usage.day * dayMs),
      create: each(async (target, { apiId, usage }) => {
        if (!(await this.#hasApi(target, apiId))) return noSuchApi;
        return this.#storeTotal(target, { of: 'api', id: apiId.slice(-8), ...usage });
      }),
    },
    tagUsage: {
      time: ({ of }) => ofCounts('day', of.day * dayMs),
      create: each(async (target, { apiId, of, counts }) => {
        if (!(await this.#hasApi(target, apiId))) return noSuchApi;
        const part = { ...of, importId: this.#importId };
        const { usageImport } = this.#store;
        const { dryRun } = this.#options;
        return partOutcome(await usageImport.tags(target.workspaceId, apiId.slice(-8), part, counts, dryRun));
      }),
    },
    namespaceUsage: {
      time: ({ usage }) => ofCounts('day', usage.day * dayMs),
      create: each(async (target, { namespaceId, usage }) => {
        const id = await this.#namespaceOf(target, namespaceId);
        return id === undefined ? noSuchNamespace : this.#storeTotal(target, { of: 'namespace', id, ...usage });
      }),
    },
    identifierUsage: {
      time: ({ of }) => ofCounts('day', of.day * dayMs),
      create: each(async (target, { namespaceId, of, counts }) => {
        const id16 = await this.#namespaceOf(target, namespaceId);
        if (id16 === undefined) return noSuchNamespace;
        const part = { ...of, importId: this.#importId };
        const { usageImport } = this.#store;
        const { dryRun } = this.#options;
        return partOutcome(await usageImport.identifiers(target.workspaceId, id16, part, counts, dryRun));
      }),
    },
    refusals: {
      time: ({ hour }) => ofCounts('hour', (hour * dayMs) / 24),
      create: each(async ({ workspaceId }, rows) =>
        existence(await this.#store.usageImport.refusals(workspaceId, rows, this.#options.dryRun)),
      ),
    },
    keyUsage: {
      time: ({ usage }) => ofCounts('days', Math.max(0, ...usage.days.slice(-1).map(({ day }) => day * dayMs))),
      create: async (target, usages) => {
        const { apiId } = usages[0]!;
        if (!(await this.#hasApi(target, apiId))) return usages.map(() => noSuchApi);
        const given = usages.map(({ usage }) => usage);
        const { usageImport } = this.#store;
        const stored = await usageImport.keys(target.workspaceId, apiId.slice(-8), given, this.#options.dryRun);
        return stored.map(partOutcome);
      },
    },
    key: this.#keyCreator(),
    deletedKey: this.#keyCreator(),
    rootKey: {
      time: ({ rootKeyId }) => ofId('rootKeyId', rootKeyId.slice('root_'.length)),
      distinct: ({ rootKeyId, digest }) => [
        [rootKeyId, idOfRootKeyTaken],
        [digest.toString('latin1'), idOfRootKeyTaken],
      ],
      takesAllNames: true,
      cost: ({ permissions }) => costOfRootKey(permissions),
      create: (target, rootKeys) => this.#createRootKeys(target, rootKeys),
    },
  };

  get #importId(): string {
    return this.#header?.exportId ?? '';
  }

  async #createPermission(target: Target, permission: RecordOf<'permission'>): Promise<Outcome> {
    const { workspaceId } = target;
    const { permissions } = this.#store;
    return existence(
      this.#options.dryRun
        ? !(await permissions.find(workspaceId, permission.slug))
        : (await permissions.create(workspaceId, permission, actorFor(target))) !== undefined,
    );
  }

  async #createRole(target: Target, role: RecordOf<'role'>): Promise<Outcome> {
    const { workspaceId } = target;
    const { dryRun } = this.#options;
    const isNew = dryRun
      ? !(await this.#store.roles.find(workspaceId, role.name))
      : 'roleId' in (await this.#store.roles.create(workspaceId, role, true, actorFor(target)));
    if (dryRun && isNew) this.#newRoles.add(role.name);
    if (isNew) noteWildcards(this.wildcardsOfRoles, role.permissions);
    return existence(isNew);
  }

  async #createPlan({ workspaceId, ...of }: Target, plan: RecordOf<'plan'>): Promise<Outcome> {
    if (this.#options.dryRun) {
      const unknown = await this.#unknownRole(workspaceId, plan.roles);
      if (unknown !== undefined) return noSuch('roles', 'role', unknown);
      const isNew = !(await this.#store.plans.find(workspaceId, plan.planId));
      if (isNew) this.#newPlans.add(plan.planId);
      return existence(isNew);
    }
    const request = { ...plan, mayCreatePermissions: true };
    const result = await this.#store.plans.create(workspaceId, request, actorFor({ workspaceId, ...of }));
    if (!result) return 'created';
    if (result.refused === 'exists') return 'existed';
    if (result.refused === 'role_not_found') return noSuch('roles', 'role', result.name);
    throw new Error(`An imported plan was refused: ${result.refused}.`);
  }

  /** The first of these roles that neither exists nor would exist by now. */
  async #unknownRole(workspaceId: string, roles: readonly string[]): Promise<string | undefined> {
    for (const name of roles)
      if (!this.#newRoles.has(name) && !(await this.#store.roles.find(workspaceId, name))) return name;
    return undefined;
  }

  /** Why data of this version cannot store a plan, or its name in a key or an identity. */
  #planFault(field: string): Fault | undefined {
    const problem = tooOld(this.#store, plansSince, field);
    return problem === undefined ? undefined : [field, problem];
  }

  async #createApi(target: Target, api: RecordOf<'api'>): Promise<Outcome> {
    const { workspaceId } = target;
    const { dryRun } = this.#options;
    const isThere = (await this.#store.apis.find(workspaceId, api.apiId)) !== undefined;
    if (dryRun && !isThere) this.#newApis.add(api.apiId);
    if (!isThere && !dryRun && !(await this.#store.apis.createAgain(workspaceId, api, actorFor(target))))
      return [
        'apiId',
        'is that of a deleted API: restore it with `tollgate api restore`, or retry when it was removed',
      ];
    this.#knownApi = { apiId: api.apiId, exists: true };
    return existence(!isThere);
  }

  async #createIdentities(target: Target, given: readonly RecordOf<'identity'>[]): Promise<Outcome[]> {
    const { identities, plans } = this.#store;
    const { workspaceId } = target;
    // The script creates all or none, so those whose plan is unknown are left out.
    const outcomes = new Map<string, Outcome>();
    for (const planId of new Set(given.map((one) => one.planId).filter((one) => one !== undefined)))
      if (!this.#newPlans.has(planId) && !(await plans.find(workspaceId, planId)))
        for (const { externalId } of given.filter((one) => one.planId === planId))
          outcomes.set(externalId, noSuch('planId', 'plan', planId));
    const some = given.filter(({ externalId }) => !outcomes.has(externalId));
    const created = this.#options.dryRun
      ? await Promise.all(
          some.map(async ({ externalId }) => ((await identities.find(workspaceId, externalId)) ? null : externalId)),
        )
      : await identities.create(workspaceId, some, actorFor(target));
    // The end of a limit in a line may be at any time.
    if ('refused' in created) throw new Error(`An imported identity was refused: ${created.refused}.`);
    for (const [at, id] of created.entries()) outcomes.set(some[at]!.externalId, existence(id !== null));
    return given.map(({ externalId }) => outcomes.get(externalId)!);
  }

  async #createNamespace(target: Target, namespace: RecordOf<'namespace'>): Promise<Outcome> {
    const { workspaceId } = target;
    const { overrides, namespaces } = this.#store;
    const existing = await overrides.findNamespace(workspaceId, namespace.name);
    if (existing) {
      if (existing.id !== namespace.id) this.#otherIds.set(namespace.id, existing.id);
    } else if (await overrides.findNamespace(workspaceId, namespace.id)) {
      return ['namespaceId', 'is the id of another namespace'];
    } else if (this.#options.dryRun) this.#newNamespaces.set(namespace.id, namespace.name);
    else await namespaces.createAgain(workspaceId, namespace, actorFor(target));
    return existence(!existing);
  }

  /** Why data of this version cannot store one of these limits. */
  #quotaFault(limits: Parameters<typeof hasQuota>[0]): Fault | undefined {
    const problem = hasQuota(limits) ? tooOld(this.#store, quotasSince, 'period') : undefined;
    return problem === undefined ? undefined : ['period', problem];
  }

  async #createOverride(target: Target, override: RecordOf<'override'>): Promise<Outcome> {
    const { workspaceId } = target;
    const { namespace, identifier, overrideId, createdAt, until, ...given } = override;
    if (this.#options.dryRun) {
      const hasEnded = until !== undefined && until <= this.#nowMs && !given.former;
      return existence(!(await this.#store.overrides.find(workspaceId, namespace, identifier)) && !hasEnded);
    }
    const keptId = overrideId.slice('rlor_'.length);
    const record = { ...given, namespace, identifier, untilMs: until, keptId, createdMs: createdAt };
    const result = await this.#store.overrides.set(workspaceId, record, actorFor(target));
    if (!('refused' in result)) return 'created';
    // An override that has ended since the export counts as one that exists: there is nothing to create.
    if (result.refused === 'exists' || result.refused === 'ended') return 'existed';
    return result.refused === 'namespace_not_found'
      ? ['namespace', 'must be the name of a namespace']
      : ['identifier', 'is one wildcard too many for its namespace or workspace'];
  }

  async #storeTotal({ workspaceId }: Target, total: DayTotals & { of: 'api' | 'namespace'; id: string }) {
    const given = { ...total, importId: this.#importId };
    return existence(await this.#store.usageImport.total(workspaceId, given, this.#options.dryRun));
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

  #keyCreator(): Creator<RecordOf<'key'>> {
    return {
      time: ({ key }) => ofId('keyId', key.keptId?.slice('key_'.length)),
      distinct: ({ key: { digest, keptId } }) => [
        [digest.toString('latin1'), 'existed'],
        [keptId, ['keyId', idTaken]],
      ],
      // A dry run does not find it where an earlier line would have created the plan.
      fault: ({ key: { planId, ratelimits = [] } }) =>
        planId !== undefined && ratelimits.length > planLimitsMax ? tooManyOwn('a key') : undefined,
      cost: ({ key: { ratelimits, permissions } }) => costOfLimits(ratelimits) + this.#permissionCosts.of(permissions),
      create: async (target, keys) => {
        const given = keys.map(({ key }) => key);
        const outcomes = await this.#createKeys(target, keys[0]!.apiId, given);
        for (const [at, { key }] of keys.entries()) if (outcomes[at] === 'created') this.#noteNew(key);
        return outcomes;
      },
    };
  }

  /**
   * Creates all keys or none in one script. If it is refused, the keys at fault are rejected and the rest is tried
   * again.
   */
  async #createKeys(target: Target, apiId: string, keys: readonly NewKey[]): Promise<Outcome[]> {
    const { dryRun } = this.#options;
    if (dryRun && this.#newApis.has(apiId)) return keys.map(() => 'created');
    const outcomes = new Map<NewKey, Outcome>();
    const left = () => keys.filter((key) => !outcomes.has(key));
    const reject = (isRejected: (key: NewKey) => boolean, field: string, message: string) => {
      for (const key of left().filter(isRejected)) outcomes.set(key, [field, message]);
    };
    for (const [field, since, has] of newFields) {
      const problem = tooOld(this.#store, since, field);
      if (problem !== undefined) reject(has, field, problem);
    }
    for (let some = left(); some.length > 0; some = left()) {
      const given = some.map((key) => this.#withoutNewRecords(key));
      const request: CreateKeys = { apiId, keys: given, mayCreatePermissions: true, dryRun };
      const result = await this.#store.keys.create(target.workspaceId, request, actorFor(target));
      if ('refused' in result) reject(...reasonOf(result));
      else for (const [at, keyId] of result.created.entries()) outcomes.set(some[at]!, existence(keyId !== null));
    }
    return keys.map((key) => outcomes.get(key)!);
  }

  /** In a dry run, the store lacks roles and plans that the import would have created by now. */
  #withoutNewRecords(key: NewKey): NewKey {
    if (this.#newRoles.size === 0 && this.#newPlans.size === 0) return key;
    const { planId } = key;
    const isNewPlan = planId !== undefined && this.#newPlans.has(planId);
    return {
      ...key,
      roles: key.roles?.filter((role) => !this.#newRoles.has(role)),
      planId: isNewPlan ? undefined : planId,
    };
  }

  /**
   * A root key gives its holder access. So a file creates root keys only in a workspace that it creates itself, or if
   * the operator asks for it.
   */
  async #createRootKeys(target: Target, rootKeys: readonly RecordOf<'rootKey'>[]): Promise<Outcome[]> {
    if (target.isOther) return rootKeys.map(() => 'foreign');
    const isLeftOut = !target.isNew && !this.#options.added.has('rootKey');
    const isDryRun = this.#options.dryRun || isLeftOut;
    const outcomes = await this.#store.rootKeys.import(target.workspaceId, rootKeys, isDryRun, actorFor(target));
    return outcomes.map((outcome, at) => {
      if (outcome === 'id_taken') return idOfRootKeyTaken;
      if (outcome !== 'created') return 'existed';
      if (isLeftOut) return 'kept';
      if (rootKeys[at]!.permissions.includes('*')) this.#admins++;
      return 'created';
    });
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
/** False for lines that are too long for that. */
const mayBeginWorkspace = ({ bytes }: Line): boolean => {
  if (!bytes) return false;
  const kind = kindBefore.exec(bytes.toString('latin1', 0, 40))?.[1] as Kind | undefined;
  return kind === undefined || kind === 'workspace' || !kinds.includes(kind);
};

const isRecord = (entry: Entry): entry is Entry<Kind> => !(markers as readonly string[]).includes(entry.kind);

/** Settles entries with a fault, or with a name that an earlier one has, and returns the others. */
function acceptedOf(
  entries: readonly Entry<Kind>[],
  { fault, distinct, takesAllNames }: Creator<unknown>,
  settle: (entry: Entry<Kind>, outcome: Outcome) => void,
): readonly Entry<Kind>[] {
  const seen = new Set<string>();
  return entries.filter((entry) => {
    const names = (distinct?.(entry.record) ?? []).filter(([name]) => name !== undefined) as [string, Outcome][];
    const outcome = fault?.(entry.record) ?? names.find(([name]) => seen.has(name))?.[1];
    if (outcome !== undefined) settle(entry, outcome);
    if (outcome === undefined || takesAllNames) for (const [name] of names) seen.add(name);
    return outcome === undefined;
  });
}

/** The entries by API; entries without one are together. */
function byApi(entries: readonly Entry<Kind>[]): Iterable<Entry<Kind>[]> {
  const found = new Map<string, Entry<Kind>[]>();
  for (const entry of entries) {
    const apiId = 'apiId' in entry.record ? entry.record.apiId : '';
    const others = found.get(apiId);
    if (others) others.push(entry);
    else found.set(apiId, [entry]);
  }
  return found.values();
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

type Reason = [isRejected: (key: NewKey) => boolean, ...fault: Fault];

const idTaken = 'is the id of another key';
const idOfRootKeyTaken = ['rootKeyId', 'is the id or the hash of another root key'] as const;
const noSuchApi = ['apiId', 'There is no such API. Import its line first, or pass another API with --api.'] as const;
const noSuchNamespace = ['namespaceId', 'There is no such namespace.'] as const;

const tooManyOwn = (owner: string): Fault => [
  'ratelimits',
  `With a plan, ${owner} has at most ${planLimitsMax} limits of its own.`,
];
const noSuch = (field: string, noun: string, name: string): Fault => [
  field,
  `There is no ${noun} ${JSON.stringify(name)}.`,
];

const partOutcome = (outcome: 'stored' | 'exists' | 'misplaced'): Outcome =>
  outcome === 'misplaced'
    ? ['part', 'is of counts whose line before it was not accepted']
    : existence(outcome === 'stored');

function reasonOf(result: Extract<Awaited<ReturnType<Store['keys']['create']>>, { refused: string }>): Reason {
  const { refused, name } = result;
  const absent = (field: 'roles' | 'permissions' | 'planId', noun: string): Reason => [
    (key) => [key[field]].flat().includes(name),
    ...noSuch(field, noun, name),
  ];
  switch (refused) {
    case 'api_not_found':
      return [() => true, ...noSuchApi];
    case 'key_id_taken':
      return [(key) => key.keptId === name, 'keyId', idTaken];
    case 'role_not_found':
      return absent('roles', 'role');
    case 'plan_not_found':
      return absent('planId', 'plan');
    case 'create_permission':
      return absent('permissions', 'permission');
    case 'expired':
    case 'ended':
    case 'too_late':
    case 'too_many_limits':
      // The expiry of a line, and the ends of its limits, may be at any time. Its limits were counted.
      throw new Error(`An imported key was refused: ${refused}.`);
  }
}

const rejection = (line: Line, field: string, message: string): Rejection => ({ line, errors: [{ field, message }] });
