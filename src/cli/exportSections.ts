// The sections of the export of a workspace, in the order of their creation during an import. Each yields pages, and
// with each page the place where the next one begins, so that an export can be resumed.

import type { ApiRecord } from '../records/apis.ts';
import type { PageOf } from '../records/pages.ts';
import type { PlanWindow } from '../records/plans.ts';
import type { WindowIndex } from '../records/windows.ts';
import type { Store } from '../store.ts';
import type { ExportedLine } from './exportedLine.ts';
import { apiLine, identityLine, keyLine, permissionLine, planLine, roleLine } from './keyLines.ts';
import type { Kind } from './lineKinds.ts';
import {
  apiUsageLine,
  identifierUsageLines,
  keyUsageLines,
  namespaceUsageLine,
  refusalsLine,
  tagUsageLines,
} from './usageLines.ts';
import { auditEventLine, namespaceLine, overrideLine, rootKeyLine, windowLine } from './workspaceLines.ts';

interface Exported {
  store: Store;
  workspaceId: string;
  apis: readonly ApiRecord[];
  /** Whether the lines of a kind are left out. */
  omits: (kind: Kind) => boolean;
  /** Gets each key whose usage is too large to be exported. */
  leaveOut: (keyId: string) => void;
  /** Undefined if it is the only workspace. */
  windowIndex: (() => Promise<WindowIndex>) | undefined;
}

interface SectionPage {
  lines: readonly ExportedLine[];
  /** Where the section continues after this page. */
  after: string;
}

type Section = (exported: Exported, after: string | undefined) => AsyncGenerator<SectionPage>;

/** A page of this many keys blocks Redis for a few milliseconds. */
const keysPerPage = 100;
/** Totals and parts of counts that are written between two places where the export can be resumed. */
const linesPerPage = 100;

export async function* pagesOf<Item>(
  read: (next: string | undefined) => Promise<PageOf<Item>>,
  after?: string | undefined,
): AsyncGenerator<{ items: Item[]; next: string | undefined }> {
  let next = after;
  do {
    const found = await read(next);
    yield found;
    next = found.next;
  } while (next !== undefined);
}

/** A list whose pages continue after an id. */
async function* pagesAfter<Item>(
  after: string | undefined,
  read: (after: string | undefined) => Promise<PageOf<Item>>,
  linesOf: (items: Item[]) => readonly ExportedLine[] | Promise<readonly ExportedLine[]>,
): AsyncGenerator<SectionPage> {
  for await (const { items, next } of pagesOf(read, after)) {
    const lines = await linesOf(items);
    if (next !== undefined || lines.length > 0) yield { lines, after: next ?? done };
  }
}

/** Such a list of a workspace, with a line for each item. */
const listed = <Item>(
  kind: Kind,
  lineOf: (item: Item) => ExportedLine,
  read: (exported: Exported, after: string | undefined) => Promise<PageOf<Item>>,
): Section =>
  async function* pages(exported, after) {
    if (exported.omits(kind)) return;
    const linesOf = (items: Item[]) => items.map(lineOf);
    yield* pagesAfter(after, (at) => read(exported, at), linesOf);
  };

/** The place after the last page of a section. */
export const done = 'done';

/** A section of each API. A place is the id of the API, a space, and the place in its section. */
const ofApis = (
  section: (exported: Exported, api: ApiRecord, after: string | undefined) => AsyncGenerator<SectionPage>,
) =>
  async function* pages(exported: Exported, after: string | undefined): AsyncGenerator<SectionPage> {
    const [apiId = '', inner] = after?.split(' ') ?? [];
    for (const api of exported.apis) {
      // APIs are in order of their ids. The one where the export was interrupted may have been deleted.
      if (api.id < apiId || (api.id === apiId && inner === done)) continue;
      yield* prefixed(api.id, section(exported, api, api.id === apiId ? inner : undefined));
    }
  };

async function* apis({ apis: all }: Exported): AsyncGenerator<SectionPage> {
  if (all.length > 0) yield { lines: all.map(apiLine), after: done };
}

/** A section of each namespace, as `ofApis`. */
const ofNamespaces = (
  section: (
    exported: Exported,
    namespace: { id: string; name: string },
    after: string | undefined,
  ) => AsyncGenerator<SectionPage>,
): Section =>
  async function* pages(exported, after) {
    const { store, workspaceId } = exported;
    const [namespaceId, inner] = after?.split(' ') ?? [];
    // Begins with the namespace in which the export was interrupted.
    if (namespaceId !== undefined && inner !== done) {
      const namespace = await store.overrides.findNamespace(workspaceId, namespaceId);
      if (namespace) yield* prefixed(namespaceId, section(exported, namespace, inner));
    }
    const read = (at: string | undefined) =>
      store.namespaces.list(workspaceId, { after: at, count: 100, order: 'asc' as const });
    for await (const { items } of pagesOf(read, namespaceId))
      for (const namespace of items) yield* prefixed(namespace.id, section(exported, namespace, undefined));
  };

async function* prefixed(id: string, pages: AsyncGenerator<SectionPage>): AsyncGenerator<SectionPage> {
  for await (const page of pages) yield { ...page, after: `${id} ${page.after}` };
}

const overrides = ofNamespaces(({ store, workspaceId }, { name }, after) =>
  pagesAfter(
    after,
    async (at) => (await store.overrides.list(workspaceId, { namespace: name, after: at, count: 500 })) ?? emptyPage,
    (items) => items.map((override) => overrideLine(name, override)),
  ),
);

/** Windows with records of their own. */
async function* windows(
  { store, workspaceId, windowIndex }: Exported,
  from: string | undefined,
): AsyncGenerator<SectionPage> {
  for await (const { windows: found, after } of store.windows.export(workspaceId, from, await windowIndex?.())) {
    const lines = found.map(({ owner, isNamespace, ...window }) => {
      const prefix = owner.length === 24 ? 'key' : isNamespace ? 'rlns' : 'id';
      return windowLine({ owner: `${prefix}_${owner}`, ...window });
    });
    yield { lines, after };
  }
}

/** The totals of the days of an API or namespace with the counts of each day. A place is the last day. */
async function* totals(
  { store, workspaceId }: Exported,
  { of, id, after }: { of: 'api' | 'namespace'; id: string; after: string | undefined },
  linesOf: (total: { day: number; counts: Record<string, number> }) => Promise<ExportedLine[]>,
): AsyncGenerator<SectionPage> {
  const { first, last } = await store.usageExport.days();
  const from = after === undefined ? first : Math.max(first, Number(after) + 1);
  let lines: ExportedLine[] = [];
  let at = after ?? done;
  for await (const total of store.usageExport.totals(workspaceId, of, id, { first: from, last })) {
    lines.push(...(await linesOf(total)));
    at = String(total.day);
    if (lines.length < linesPerPage) continue;
    yield { lines, after: at };
    lines = [];
  }
  if (lines.length > 0) yield { lines, after: at };
}

const apiUsage = ofApis(async function* pages(exported, { id }, after) {
  const { store, workspaceId, omits } = exported;
  if (omits('apiUsage')) return;
  const api8 = id.slice(-8);
  yield* totals(exported, { of: 'api', id: api8, after }, async (total) => {
    const tags = 'tags' in total.counts ? await store.usageExport.tags(workspaceId, api8, total.day) : [];
    return [apiUsageLine(id, total), ...tagUsageLines(id, total.day, tags)];
  });
});

const namespaceUsage = ofNamespaces(async function* pages(exported, { id }, after) {
  const { store, workspaceId, omits } = exported;
  if (omits('namespaceUsage')) return;
  const id16 = id.slice('rlns_'.length);
  yield* totals(exported, { of: 'namespace', id: id16, after }, async (total) => {
    const counts = await store.usageExport.identifiers(workspaceId, id16, total.day);
    return [namespaceUsageLine(id, total), ...identifierUsageLines(id, total.day, counts)];
  });
});

async function* refusals(
  { store, workspaceId, omits }: Exported,
  after: string | undefined,
): AsyncGenerator<SectionPage> {
  if (omits('refusals')) return;
  const [lastHour, lastOffset] = after === undefined ? [-1, -1] : after.split(':').map(Number);
  for await (const { hour, offset, rows } of store.usageExport.refusals(workspaceId)) {
    if (hour < lastHour! || (hour === lastHour && offset <= lastOffset!)) continue;
    yield { lines: [refusalsLine(hour, offset, rows)], after: `${hour}:${offset}` };
  }
}

/** The usage of deleted keys. A place is the rank of the next one in their list. */
const formerKeys = ofApis(async function* pages({ store, workspaceId, omits, leaveOut }, { id }, after) {
  if (omits('keyUsage')) return;
  for (let at = Number(after ?? 0); ; at += keysPerPage) {
    const keys = await store.usageExport.formerKeys(workspaceId, id.slice(-8), at, keysPerPage);
    if (keys.length === 0) return;
    const ids = keys.map(({ keyId }) => keyId);
    const usage = await store.usageExport.keys(workspaceId, ids, leaveOut);
    const lines = keys.flatMap(({ keyId, deletedHour }) =>
      keyUsageLines(id, { keyId, deletedHour, days: usage.get(keyId) ?? [] }),
    );
    yield { lines, after: String(at + keysPerPage) };
  }
});

/** The windows of the limits that an owner has of its plan. They are before the owner, whose import uses them. */
const windowsOfPlan = (owner: string, planUsed: readonly PlanWindow[] = []) =>
  planUsed.map((window) => windowLine({ owner, ...window }));

const identities: Section = ({ store, workspaceId }, after) =>
  pagesAfter(
    after,
    (at) => store.identities.export(workspaceId, { after: at, count: keysPerPage }),
    (items) => items.flatMap((identity) => [...windowsOfPlan(identity.id, identity.planUsed), identityLine(identity)]),
  );

/** Pages of the keys of an API; none if it was deleted meanwhile. */
const keysOf =
  ({ store, workspaceId }: Exported, apiId: string, deleted: boolean) =>
  async (after: string | undefined) =>
    (await store.keys.export(workspaceId, { apiId, deleted, after, count: keysPerPage })) ?? emptyPage;

/** Each key is after its usage. */
const keys = ofApis((exported, { id }, after) =>
  pagesAfter(after, keysOf(exported, id, false), async (items) => {
    const { store, workspaceId, omits, leaveOut } = exported;
    const ids = items.map(({ keyId }) => keyId);
    const usage = omits('keyUsage') ? undefined : await store.usageExport.keys(workspaceId, ids, leaveOut);
    return items.flatMap((key) => {
      const { keyId, externalId, planUsed } = key;
      const days = usage?.get(keyId);
      const usageLines = days ? keyUsageLines(id, { keyId, externalId, days }) : [];
      return [...usageLines, ...windowsOfPlan(keyId, planUsed), keyLine(key)];
    });
  }),
);

const deletedKeys = ofApis((exported, { id }, after) =>
  pagesAfter(after, keysOf(exported, id, true), (items) =>
    items.flatMap((key) => [...windowsOfPlan(key.keyId, key.planUsed), keyLine(key)]),
  ),
);

const emptyPage = { items: [], next: undefined };

/** In the order of the file. */
export const sections = {
  audit: listed('auditEvent', auditEventLine, ({ store, workspaceId }, after) =>
    store.audit.export(workspaceId, { after, count: 500 }),
  ),
  permissions: listed('permission', permissionLine, ({ store, workspaceId }, after) =>
    store.permissions.list(workspaceId, { after, count: 500 }),
  ),
  // Small pages, as a role may have a thousand permissions.
  roles: listed('role', roleLine, ({ store, workspaceId }, after) =>
    store.roles.list(workspaceId, { after, count: 20 }),
  ),
  plans: listed('plan', planLine, ({ store, workspaceId }, after) =>
    store.plans.list(workspaceId, { after, count: 100 }),
  ),
  apis,
  identities,
  namespaces: listed('namespace', namespaceLine, ({ store, workspaceId }, after) =>
    store.namespaces.list(workspaceId, { after, count: 500, order: 'asc' }),
  ),
  overrides,
  windows,
  apiUsage,
  namespaceUsage,
  refusals,
  formerKeys,
  keys,
  deletedKeys,
  rootKeys: listed('rootKey', rootKeyLine, ({ store, workspaceId }, after) =>
    store.rootKeys.export(workspaceId, { after, count: 100 }),
  ),
} as const satisfies Record<string, Section>;
export type SectionName = keyof typeof sections;

/** Sections that belong to a whole workspace: an export of one API is without them. */
export const ofWorkspaceOnly: readonly SectionName[] = [
  'audit',
  'namespaces',
  'overrides',
  'windows',
  'namespaceUsage',
  'refusals',
  'rootKeys',
];
