// The responses of operations (docs/contract.md). Only their types are imported, so the console has no code of the
// server: it is a client of /v2, compiled for a browser.

import type { Static } from 'typebox';
import type { JsonText } from '../domain/json.ts';
import type { OperationName, Operations } from '../operations/index.ts';

export type { Ratelimit } from '../domain/limit.ts';

/** The type to which the JSON of a value is parsed. */
type Parsed<Value> = Value extends JsonText
  ? Record<string, unknown>
  : Value extends readonly (infer Item)[]
    ? Parsed<Item>[]
    : Value extends object
      ? { [Name in keyof Value]: Parsed<Value[Name]> }
      : Value;
type Outputs = { [Each in Operations[number] as Each['name']]: Each['output'] };
type Output<Name extends OperationName> = Parsed<Static<Outputs[Name]>>;
type Row<Name extends OperationName> = Output<Name> extends (infer Item)[] ? Item : never;

export type Api = Row<'apis.listApis'>;
export type AuditEvent = Row<'audit.listEvents'>;
type Tailed = Output<'analytics.tail'>;
type Verification = Extract<Tailed, { outcome: unknown }>;
/** A verification, or a limit check of a namespace. */
export type Decision = Pick<Verification, 'time' | 'latencyMs' | 'source' | 'sample'> &
  Partial<Verification & Extract<Tailed, { namespace: unknown }>>;
export type Explained = Output<'keys.explainKey'>;
/** A rule of a verification, with its figures. */
export type ExplainedRule = Explained['rules'][number];
export type ExplainedLimit = NonNullable<ExplainedRule['ratelimits']>[number];
export type Identity = Output<'identities.getIdentity'>;
/** `restorableUntil` is of a deleted key. */
export type Key = Omit<Row<'keys.listKeys'>, 'permissions'> & { permissions?: string[] };
export type Credits = NonNullable<Key['credits']>;
export type LimitRow = Row<'analytics.getRatelimits'>;
export type NamespaceRow = Row<'ratelimits.listNamespaces'>;
export type OpenHold = Row<'keys.listHolds'>;
export type Override = Output<'ratelimits.getOverride'>;
export type Permission = Output<'permissions.getPermission'>;
/** Refusals of a key that have one row. */
export type Refusals = Row<'analytics.listRefusals'>;
export type Plan = Output<'plans.getPlan'>;
export type Role = Output<'permissions.getRole'>;
export type RootKey = Row<'rootKeys.listRootKeys'>;
export type Settings = Output<'workspace.getSettings'>;
export type Status = Output<'system.getStatus'>;
export type TopRow = Output<'analytics.getTop'>['top'][number];
/** A temporary limit or override, with its owner. */
export type Temporary = Row<'ratelimits.listTemporary'>;
export type ChangedKeys = Output<'keys.changeKeys'>;
/** One field of a key, and its value. */
export type KeyChange = ChangedKeys['changed'][number]['before'];
/** A thing that system.find or a search has found. */
export type Found = Output<'system.find'>['items'][number];
export type UsageRow = Row<'analytics.getVerifications'>;
