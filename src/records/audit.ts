// Reads the audit log: a stream of management changes, which the scripts write (lua/include/audit.lua).

import { orStoreError, type RedisClient } from '../redis/connection.ts';
import { auditKey, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { LookedPage, Order, PageOf } from './pages.ts';
import { fromNamed } from './records.ts';
import { cliActor } from './rootKeys.ts';

interface AuditChange {
  /** The field of the resource, as the interface names it. */
  field: string;
  /** Text, cut after 200 bytes. Absent for no value. */
  before?: string;
  after?: string;
  /** Of a change of several keys: those that had `before`. `resource` of the event is the first key. */
  keyIds?: string[];
}

/** `rootKeyName`: the present name of the root key. Absent if it has none or was deleted. */
type AuditEvent = ReturnType<typeof readEvent> & { rootKeyName?: string };

interface EventQuery {
  order: Order;
  /** The id of the last event that was examined for the page before. */
  after?: string | undefined;
  count: number;
  /** Unix milliseconds of Redis's clock: events from `start` on, and before `end`. */
  start?: number | undefined;
  end?: number | undefined;
  rootKeyId?: string | undefined;
  operation?: string | undefined;
  resource?: { type?: string | undefined; id?: string | undefined } | undefined;
}

/** Events that one command reads, at most 2 MB. */
const stepMax = 500;
/** Limit of the events that one request examines. */
const lookedMax = 10_000;

export function openAudit({ redis, run, auditEventsMax }: StoreContext) {
  /** At most as many as a page has events. */
  async function nameRootKeys(workspaceId: string, events: readonly AuditEvent[]): Promise<AuditEvent[]> {
    const ids = [...new Set(events.map(({ rootKeyId }) => rootKeyId))].filter((id) => id !== cliActor.rootKeyId);
    if (ids.length === 0) return [...events];
    const names = await run('rootKeys/names', workspaceId, { ids });
    const nameOf = new Map(ids.map((id, index) => [id, names[index]!]));
    return events.map(({ id, time, rootKeyId, ...rest }) => {
      const name = nameOf.get(rootKeyId);
      return { id, time, rootKeyId, ...(name && { rootKeyName: name }), ...rest };
    });
  }

  return {
    /** A page of events as they are stored, oldest first, after the one with the id `after`. */
    async export(
      workspaceId: string,
      { after, count }: { after?: string | undefined; count: number },
    ): Promise<PageOf<StoredEvent>> {
      const entries = await read(redis, auditKey(workspaceKey(workspaceId)), { order: 'asc', after, count }, count + 1);
      const items = entries.slice(0, count).map(([id, fields]) => ({ id, fields: fromNamed<EventFields>(fields) }));
      return { items, next: entries.length > count ? items.at(-1)?.id : undefined };
    },

    /** Appends events of an export, in order of their ids. Returns how many are later than all stored ones. */
    import: (workspaceId: string, events: readonly StoredEvent[], isDryRun: boolean): Promise<number> =>
      run('audit/import', workspaceId, {
        events: JSON.stringify(events.map(({ id, fields }) => [id, Object.entries(fields).flat()])),
        eventsMax: auditEventsMax,
        dryRun: isDryRun ? 1 : 0,
      }),

    /** A page of events that match, oldest or newest first. */
    async list(workspaceId: string, query: EventQuery): Promise<LookedPage<AuditEvent>> {
      const stream = auditKey(workspaceKey(workspaceId));
      const { rootKeyId, operation, resource } = query;
      const isFiltered = rootKeyId !== undefined || operation !== undefined || resource !== undefined;
      const items: AuditEvent[] = [];
      let after = query.after;
      let looked = 0;
      let isMore = true;
      while (isMore && looked < lookedMax && items.length < query.count) {
        const step = isFiltered ? stepMax : query.count;
        const entries = await read(redis, stream, { ...query, after }, step + 1);
        isMore = entries.length > step;
        for (const [index, [id, fields]] of entries.slice(0, step).entries()) {
          looked++;
          after = id;
          const event = readEvent(id, fields);
          if (matches(event, query)) items.push(event);
          if (items.length < query.count) continue;
          isMore = index < entries.length - 1;
          break;
        }
      }
      const [total, named] = await Promise.all([orStoreError(redis.xlen(stream)), nameRootKeys(workspaceId, items)]);
      return { items: named, next: isMore ? after : undefined, looked, total };
    },
  };
}

/**
 * Events in the period of a query, after the one with the id `after`. Their ids begin with their time, and always
 * ascend.
 */
function read(redis: RedisClient, stream: string, { order, after, start, end }: EventQuery, count: number) {
  // An id without a number is the first or the last one of its millisecond.
  const first = start === undefined ? '-' : String(start);
  const last = end === undefined ? '+' : end === 0 ? '0-1' : String(end - 1);
  return orStoreError(
    order === 'asc'
      ? redis.xrange(stream, after === undefined ? first : `(${after}`, last, 'COUNT', count)
      : redis.xrevrange(stream, after === undefined ? last : `(${after}`, first, 'COUNT', count),
  );
}

function matches(event: AuditEvent, { rootKeyId, operation, resource }: EventQuery): boolean {
  return (
    (rootKeyId === undefined || event.rootKeyId === rootKeyId) &&
    (operation === undefined || event.operation === operation) &&
    (resource?.type === undefined || event.resource.type === resource.type) &&
    (resource?.id === undefined ||
      event.resource.id === resource.id ||
      (event.changes ?? []).some(({ keyIds }) => keyIds?.includes(resource.id!)))
  );
}

/** An event of an export. */
export interface StoredEvent {
  /** `<ms>-<number>` */
  id: string;
  fields: EventFields;
}

/** The fields of an event in the stream. */
interface EventFields {
  time: string;
  rootKeyId: string;
  operation: string;
  /** The type of the resource, whose id is `id`. */
  type: string;
  id: string;
  requestId: string;
  address?: string;
  /** JSON of AuditChange[]. */
  changes?: string;
}

function readEvent(eventId: string, fields: string[]) {
  const { time, rootKeyId, operation, type, id, requestId, address, changes } = fromNamed<EventFields>(fields);
  return {
    id: eventId,
    time: Number(time),
    rootKeyId,
    operation,
    resource: { type, id },
    requestId,
    ...(address !== undefined && { address }),
    ...(changes !== undefined && { changes: JSON.parse(changes) as AuditChange[] }),
  };
}
