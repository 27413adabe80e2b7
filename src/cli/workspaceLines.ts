// Lines about a workspace besides its keys: its settings, root keys, audit events, namespaces and overrides. And lines
// of the file: header, positions and end.

import Type, { type Static } from 'typebox';
import { timeMax } from '../domain/time.ts';
import { setOverride } from '../operations/ratelimits/setOverride.ts';
import { parseGrants } from '../operations/rootKeys/grantList.ts';
import { checkPeriod, invalid } from '../operations/rules.ts';
import { Fields, Identifier, Int, KeyName, periodFields } from '../operations/schemas.ts';
import { checkSettings, settings } from '../operations/workspace/settings.ts';
import type { StoredEvent } from '../records/audit.ts';
import type { Namespace, Override } from '../records/overrides.ts';
import type { ExportedRootKey } from '../records/rootKeys.ts';
import { lineOf, lineText } from './exportedLine.ts';
import { base58, type Counts, idOf, kinds, lineKind } from './lineKinds.ts';
import { checkUsed, LineNamespaceId, Used } from './usageLines.ts';

const { limit, duration, period, anchor } = setOverride.input.properties;
const overrideAmount = { limit, duration, period, anchor };
const WorkspaceId = idOf('ws');
const RootKeyId = idOf('root');
const Time = Int([0, timeMax]);
const text = (maxLength: number) => Type.String({ maxLength });

const auditFields = {
  time: Type.String({ pattern: '^\\d{1,13}$' }),
  rootKeyId: text(255),
  operation: text(255),
  type: text(255),
  id: text(255),
  requestId: text(255),
  address: Type.Optional(text(255)),
  changes: Type.Optional(text(16_384)),
};

const OwnerId = Type.String({ pattern: `^(?:(?:rlns|id)_${base58}{16}|key_${base58}{24})$` });

export const workspaceKinds = {
  workspace: lineKind(
    Fields({
      workspaceId: WorkspaceId,
      name: Type.String({ minLength: 1, maxLength: 255 }),
      createdAt: Time,
      protectApis: Type.Boolean(),
      me: Type.Optional(settings.me),
      prices: Type.Optional(settings.prices),
      /** The number after which ids continue: far from the largest whole number, so that there is room for new ids. */
      sequence: Int([0, 2 ** 51]),
    }),
    (workspace) => {
      checkSettings(workspace);
      return workspace;
    },
  ),
  auditEvent: lineKind(
    Fields({ eventId: Type.String({ pattern: '^\\d{1,13}-\\d{1,10}$' }), ...auditFields }),
    ({ eventId, ...fields }): StoredEvent => {
      if (fields.changes !== undefined) checkChanges(fields.changes);
      return { id: eventId, fields };
    },
  ),
  namespace: lineKind(
    Fields({ namespaceId: LineNamespaceId, name: Type.String({ minLength: 1, maxLength: 512 }) }),
    ({ namespaceId, name }): Namespace => {
      if (name.startsWith('rlns_')) throw invalid('body.name', 'must not begin like an id');
      return { id: namespaceId, name };
    },
  ),
  override: lineKind(
    Fields({
      overrideId: idOf('rlor'),
      namespace: Type.String({ minLength: 1, maxLength: 512 }),
      identifier: Identifier,
      ...overrideAmount,
      createdAt: Type.Optional(Time),
      until: Type.Optional(Time),
      former: Type.Optional(Fields(overrideAmount)),
    }),
    (override) => {
      checkPeriod(override, 'body');
      if (override.former) checkPeriod(override.former, 'body.former');
      if (override.former && override.until === undefined)
        throw invalid('body.former', 'needs `until`, the time from which on it is in force');
      return override;
    },
  ),
  window: lineKind(
    Fields({
      owner: OwnerId,
      duration: Type.Optional(Int(1000)),
      ...periodFields,
      name: Type.String({ minLength: 1, maxLength: 512 }),
      used: Used,
    }),
    (window) => {
      checkPeriod(window, 'body');
      checkUsed(window.used, 'body.used');
      return window;
    },
  ),
  rootKey: lineKind(
    Fields({
      rootKeyId: RootKeyId,
      hash: Type.String({ maxLength: 64 }),
      start: Type.String({ maxLength: 32 }),
      name: Type.Optional(KeyName),
      permissions: Type.Array(Type.String({ minLength: 1, maxLength: 512 }), { maxItems: 10_000 }),
      enabled: Type.Boolean(),
      expires: Type.Optional(Time),
      createdAt: Time,
      lastUsedAt: Type.Optional(Time),
    }),
    ({ hash, permissions, ...rest }): ExportedRootKey => {
      const digest = Buffer.from(hash, 'base64');
      if (digest.length !== 32 || digest.toString('base64') !== hash)
        throw invalid('body.hash', 'is not the base64 of 32 bytes');
      return { ...rest, permissions: parseGrants(permissions), digest };
    },
  ),
};

const CountsOfKinds = Type.Unsafe<Partial<Counts>>({
  type: 'object',
  properties: Object.fromEntries(kinds.map((kind) => [kind, Int(0)])),
  additionalProperties: false,
});

const Header = Fields({
  format: Int(1),
  release: text(100),
  exportId: Type.String({ pattern: '^[A-Za-z0-9_-]{8,64}$' }),
  exportedAt: Time,
  workspaces: Type.Array(WorkspaceId, { maxItems: 20_000 }),
  api: Type.Optional(idOf('api')),
  without: Type.Optional(Type.Array(text(30), { maxItems: 20 })),
});
const Position = Fields({ workspaceId: WorkspaceId, section: text(50), after: text(2000), counts: CountsOfKinds });
const End = Fields({ counts: CountsOfKinds });
export type Header = Static<typeof Header>;
export type Position = Static<typeof Position>;
export type End = Static<typeof End>;

export const markerKinds = {
  header: lineKind(Header, (header) => header),
  position: lineKind(Position, (position) => position),
  end: lineKind(End, (end) => end),
};

/** Every page of the audit log parses them. */
function checkChanges(text: string) {
  const fault = () => invalid('body.changes', 'is not a JSON list of changes');
  let changes: unknown;
  try {
    changes = JSON.parse(text);
  } catch {
    throw fault();
  }
  if (!Array.isArray(changes)) throw fault();
  for (const change of changes as Record<string, unknown>[]) {
    const isChange = typeof change === 'object' && change !== null && typeof change.field === 'string';
    const areTexts = [change?.before, change?.after].every((each) => each === undefined || typeof each === 'string');
    const ofKeys = change?.keyIds ?? [];
    const areIds = Array.isArray(ofKeys) && ofKeys.every((each) => typeof each === 'string');
    if (!isChange || !areTexts || !areIds) throw fault();
  }
}

type RecordOf<Name extends keyof typeof workspaceKinds> = ReturnType<(typeof workspaceKinds)[Name]['read']>;
export const headerLine = (header: Header) => lineText('header', header);
export const positionLine = (position: Position) => lineText('position', position);
export const endLine = (end: End) => lineText('end', end);
export const workspaceLine = (workspace: RecordOf<'workspace'>) => lineText('workspace', workspace);
export const auditEventLine = ({ id, fields }: StoredEvent) => lineOf('auditEvent', { eventId: id, ...fields });
export const namespaceLine = ({ id, name }: Namespace) => lineOf('namespace', { namespaceId: id, name });
export const overrideLine = (namespace: string, override: Override) => lineOf('override', { namespace, ...override });
export const windowLine = (window: RecordOf<'window'>) => lineOf('window', window);
export const rootKeyLine = ({ digest, ...rootKey }: ExportedRootKey) =>
  lineOf('rootKey', { ...rootKey, hash: digest.toString('base64') });
