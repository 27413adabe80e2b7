// Reads the audit log: a stream of management changes, which the scripts write (lua/include/audit.lua).

import type { StoreContext } from './context.ts';
import { auditKey, workspaceKey } from './keyspace.ts';
import type { PageOf } from './pages.ts';
import { fromNamed } from './records.ts';
import { orStoreError } from './redis.ts';

interface AuditEvent {
  id: string;
  time: number;
  rootKeyId: string;
  operation: string;
  resource: { type: string; id: string };
  requestId: string;
}

export function openAudit({ redis }: StoreContext) {
  return {
    /** A page of events, oldest or newest first, after the event with the id `after`. */
    async list(
      workspaceId: string,
      page: { after?: string | undefined; count: number; order: 'asc' | 'desc' },
    ): Promise<PageOf<AuditEvent>> {
      const stream = auditKey(workspaceKey(workspaceId));
      const beyond = page.after === undefined ? undefined : `(${page.after}`;
      const count = page.count + 1;
      const entries = await orStoreError(
        page.order === 'asc'
          ? redis.xrange(stream, beyond ?? '-', '+', 'COUNT', count)
          : redis.xrevrange(stream, beyond ?? '+', '-', 'COUNT', count),
      );
      const items = entries.slice(0, page.count).map(([id, fields]) => readEvent(id, fields));
      return { items, next: entries.length > page.count ? items.at(-1)?.id : undefined };
    },
  };
}

/** The fields of an event in the stream. */
interface EventFields {
  time: string;
  rootKeyId: string;
  operation: string;
  /** Of the resource, as `id`. */
  type: string;
  id: string;
  requestId: string;
}

function readEvent(eventId: string, fields: string[]): AuditEvent {
  const { time, rootKeyId, operation, type, id, requestId } = fromNamed<EventFields>(fields);
  return { id: eventId, time: Number(time), rootKeyId, operation, resource: { type, id }, requestId };
}
