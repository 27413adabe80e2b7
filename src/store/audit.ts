// What has been changed by whom: read here, written by every script that manages (lua/include/audit.lua).

import type { StoreContext } from './context.ts';
import { auditKey, workspaceKey } from './keyspace.ts';
import type { PageOf } from './pages.ts';
import { orStoreError } from './redis.ts';

export interface AuditEvent {
  id: string;
  time: number;
  rootKeyId: string;
  operation: string;
  resource: { type: string; id: string };
  requestId: string;
}

export function openAudit({ redis }: StoreContext) {
  return {
    /** A page of events, oldest or newest first. `after` is the id of an event. */
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

function readEvent(id: string, fields: string[]): AuditEvent {
  const values: Record<string, string> = {};
  for (let index = 0; index < fields.length; index += 2) values[fields[index]!] = fields[index + 1]!;
  const { time, rootKeyId, operation, type, requestId } = values as Record<string, string> as Record<
    'time' | 'rootKeyId' | 'operation' | 'type' | 'requestId',
    string
  >;
  return { id, time: Number(time), rootKeyId, operation, resource: { type, id: values.id! }, requestId };
}
