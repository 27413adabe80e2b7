// The responses of operations, as far as screens use them (docs/contract.md). The store has types of some of them, but
// the console imports nothing of the server: it is a client of /v2, compiled for a browser.

import type { Ratelimit } from '../domain/limit.ts';

export type { Ratelimit };

interface Refill {
  interval: 'daily' | 'monthly';
  amount: number;
  refillDay?: number;
}

export interface Credits {
  remaining: number;
  refill?: Refill;
}

export interface Identity {
  id: string;
  externalId: string;
  meta?: Record<string, unknown>;
  ratelimits?: Ratelimit[];
}

export interface Key {
  keyId: string;
  apiId: string;
  start: string;
  enabled: boolean;
  createdAt: number;
  prefix?: string;
  name?: string;
  externalId?: string;
  meta?: Record<string, unknown>;
  expires?: number;
  updatedAt?: number;
  lastUsedAt?: number;
  successor?: string;
  permissions?: string[];
  roles?: string[];
  credits?: Credits;
  identity?: Identity;
  ratelimits?: Ratelimit[];
  /** Of a deleted key. */
  restorableUntil?: number;
}

interface Overdue {
  overdue: number;
  lateMs: number;
}

export interface Status {
  time: number;
  versions: { tollgate: string; node: string; redis?: string; data: number };
  process: {
    uptimeMs: number;
    memoryBytes: number;
    decisions?: { periodMs: number; count: number; p50Ms?: number; p99Ms?: number };
  };
  redis: {
    nodes: number;
    roundTripMs: number;
    usedBytes?: number;
    maxBytes?: number;
    checks: { check: string; status: 'ok' | 'warning' | 'fault' | 'unknown'; found: string; change?: string }[];
  };
  sweeper: { sweptAt?: number; refills: Overdue; purges: Overdue; rollups: Overdue };
  stored: Record<string, number>;
  leases: { sessions: number; silent: number };
}

export interface UsageRow {
  time: number;
  apiId?: string;
  keyId?: string;
  externalId?: string;
  outcome?: string;
  tag?: string;
  count: number;
  spentCredits: number;
}

/** Refusals of a key that have one row. */
export interface Refusals {
  /** Of the last one. */
  time: number;
  outcome: string;
  keyId: string;
  externalId?: string;
  /** The permission query, of a long one the beginning. */
  permissions?: string;
  permissionsCut?: true;
  /** The limit that was exceeded, by its name. */
  ratelimit?: string;
  limit?: number;
  duration?: number;
  /** Units of this limit, or credits. */
  cost?: number;
  remaining?: number;
  tags?: string[];
  source: 'redis' | 'lease';
  count: number;
}

export interface LimitRow {
  time: number;
  namespace: string;
  identifier?: string;
  passed: number;
  blocked: number;
}

export interface Override {
  overrideId: string;
  namespace: string;
  namespaceId: string;
  identifier: string;
  limit: number;
  duration: number;
  createdAt: number;
}

export interface RootKey {
  rootKeyId: string;
  name?: string;
  start: string;
  permissions: string[];
  enabled: boolean;
  expires?: number;
  createdAt: number;
  lastUsedAt?: number;
}

export interface Permission {
  id: string;
  name: string;
  slug: string;
  description?: string;
}

export interface Role {
  id: string;
  name: string;
  description?: string;
  permissions: Permission[];
}

export interface AuditEvent {
  id: string;
  time: number;
  rootKeyId: string;
  rootKeyName?: string;
  operation: string;
  resource: { type: string; id: string };
  requestId: string;
  address?: string;
  changes?: { field: string; before?: string; after?: string }[];
}

export interface Api {
  id: string;
  name: string;
  createdAt: number;
  keyCount: number;
}

export interface NamespaceRow {
  id: string;
  name: string;
  createdAt: number;
  overrideCount: number;
}

export interface ExplainedLimit extends Ratelimit {
  of: 'key' | 'identity' | 'request';
  cost: number;
  used: number;
  exceeded: boolean;
  remaining: number;
  reset: number;
}

/** A rule of a verification, with its figures. */
export interface ExplainedRule {
  rule: 'key' | 'enabled' | 'expires' | 'permissions' | 'ratelimit_names' | 'ratelimits' | 'credits';
  result: 'passed' | 'failed' | 'not_reached';
  reason?: string;
  expires?: number;
  slugs?: { slug: string; held: boolean }[];
  missing?: string[];
  ratelimits?: ExplainedLimit[];
  balance?: number;
  cost?: number;
  remaining?: number;
  refill?: Refill & { next: number };
}

export interface Explained {
  valid: boolean;
  code: string;
  time: number;
  keyId?: string;
  rules: ExplainedRule[];
  charge: { credits: number; ratelimits: { id: string; name: string; cost: number }[] };
  leased?: { key: number; identity: number };
}
