// The kinds of records of a workspace, each declared once. Grants, errors, cursors and the ids in tests follow.

interface Kind {
  /** In sentences. */
  noun: string;
  /** An id is `<prefix>_` and `idLength` characters of base58, 16 if that is absent. */
  prefix: string;
  idLength?: 24;
  /** The resource and the actions of grants: `create` of `api` is `create_api`. */
  resource: string;
  actions: readonly string[];
  /** Grants of the resource may name an id of this kind instead of `*`. */
  isScope?: true;
  /** The field by which a second one is refused with `<kind>_already_exists`. */
  unique?: string;
  /** The meaning of `<kind>_not_found`, where the usual one is wrong. */
  notFound?: string;
}

const manage = ['create', 'read', 'update', 'delete'] as const;

export const records = {
  api: { noun: 'API', prefix: 'api', resource: 'api', actions: ['read', 'create', 'update', 'delete'], isScope: true },
  key: { noun: 'key', prefix: 'key', idLength: 24, resource: 'api', actions: manage },
  identity: {
    noun: 'identity',
    prefix: 'id',
    resource: 'identity',
    actions: manage,
    isScope: true,
    unique: 'externalId',
  },
  permission: { noun: 'permission', prefix: 'perm', resource: 'rbac', actions: manage, unique: 'slug' },
  role: { noun: 'role', prefix: 'role', resource: 'rbac', actions: manage, unique: 'name' },
  namespace: {
    noun: 'namespace',
    prefix: 'rlns',
    resource: 'ratelimit',
    actions: ['create', 'read'],
    isScope: true,
    notFound: 'The rate-limit namespace is unknown or belongs to another workspace.',
  },
  override: {
    noun: 'override',
    prefix: 'rlor',
    resource: 'ratelimit',
    actions: ['set', 'read', 'delete'],
    notFound: 'No override exists for exactly this identifier.',
  },
  plan: { noun: 'plan', prefix: 'plan', resource: 'plan', actions: manage, unique: 'planId' },
  root_key: { noun: 'root key', prefix: 'root', resource: 'root_key', actions: manage },
} as const satisfies Record<string, Kind>;

type Records = typeof records;
export type RecordName = keyof Records;
/** The kinds of which there cannot be two with the same name. */
export type UniqueRecord = {
  [Name in RecordName]: Records[Name] extends { unique: string } ? Name : never;
}[RecordName];
export type RecordResource = Records[RecordName]['resource'];
/** The actions on all kinds of a resource. */
export type RecordAction<R> = {
  [Name in RecordName]: Records[Name]['resource'] extends R ? `${Records[Name]['actions'][number]}_${Name}` : never;
}[RecordName];

export const recordKinds = Object.entries(records) as [RecordName, Kind][];

/** The exact format of ids. */
export const idForms = Object.fromEntries(
  recordKinds.map(([kind, { prefix, idLength = 16 }]) => [
    kind,
    new RegExp(`^${prefix}_[1-9A-HJ-NP-Za-km-z]{${idLength}}$`),
  ]),
) as Record<RecordName, RegExp>;
