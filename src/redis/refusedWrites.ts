// Why a Redis refuses writes while it serves reads.

import { ApiError, type ErrorCode } from '../errors.ts';

interface Reason {
  /** The error replies. */
  reply: RegExp;
  code: ErrorCode;
  /** For callers. */
  text: string;
  /** For the operator. */
  found: string;
  change: string;
}

/** The first that matches an error reply is the reason. The names are labels of a metric. */
const reasons = {
  memory_full: {
    reply: /^-?OOM\b/,
    code: 'store_full',
    text: 'The store is full: Redis has reached its maxmemory and refuses what takes memory. Nothing was changed. Keys and root keys can still be disabled and deleted.',
    found: 'its memory is full (maxmemory)',
    change: 'Give Redis more memory, or delete keys with `key delete --permanent`. Disabling and deleting keys works.',
  },
  disk_full: {
    reply: /^-?MISCONF\b.*(No space left on device|Disk quota exceeded|File too large)/s,
    code: 'store_full',
    text: 'The store is full: the disk of Redis has no space left, and Redis refuses all changes. Nothing was changed.',
    found: 'its disk is full',
    change: 'Free disk space. Redis accepts writes by itself when there is some.',
  },
  disk_error: {
    reply: /^-?MISCONF\b/,
    code: 'store_unavailable',
    text: 'Redis cannot write to its disk and refuses all changes. Its log has the reason. Nothing was changed.',
    found: 'it cannot write to its disk',
    change: 'The log of Redis has the reason.',
  },
  replica: {
    reply: /^-?READONLY\b/,
    code: 'store_unavailable',
    text: 'Redis is a replica, which refuses all changes. Nothing was changed.',
    found: 'it is a replica',
    change: 'Set REDIS_URL to the master.',
  },
  few_replicas: {
    reply: /^-?NOREPLICAS\b/,
    code: 'store_unavailable',
    text: 'Redis has fewer replicas than its min-replicas-to-write and refuses all changes. Nothing was changed.',
    found: 'it has fewer replicas than min-replicas-to-write',
    change: 'Restore the replicas, or lower min-replicas-to-write.',
  },
} as const satisfies Record<string, Reason>;

export type Refusal = keyof typeof reasons;

export const refusals = Object.keys(reasons) as Refusal[];

/** Undefined if an error reply has another cause. */
export const refusalOf = (message: string): Refusal | undefined =>
  refusals.find((refusal) => reasons[refusal].reply.test(message));

/** For the operator: what was found, and how to fix it. */
export const foundOf = (refusal: Refusal): Pick<Reason, 'found' | 'change'> => reasons[refusal];

/** The error of a command that Redis refused for this reason. */
export const writesRefused = (refusal: Refusal, cause: Error): ApiError =>
  new ApiError(reasons[refusal].code, reasons[refusal].text, { cause });
