// The tests that can kill a mutant of a file: first those for the file, the fastest first; then all about decisions and
// records.

const under = (folder, names) => names.split(' ').map((name) => `test/${folder}/${name}.test.ts`);
const verify = under('operations/keys', 'verifyKey');
const ratelimits = under('operations/ratelimits', 'limit multiLimit');
const analytics = under('operations/analytics', 'getVerifications getRatelimits');
const inspection = ['test/records/inspection.test.ts'];
const leases = under('decide/leases', 'ends lost returns sessions leases limits');
const window = ['test/lua/include/window.test.ts'];
const keys = under('operations/keys', 'createKey updateKey migrateKeys');
const holds = [
  ...under('operations/keys', 'holds returnedUnits concurrency'),
  ...under('operations/identities', 'creditHolds'),
  ...under('decide/leases', 'holds'),
  ...under('operations/keys', 'holdBytes holdHistories'),
];
const state = ['test/lua/include/state.test.ts', 'test/scripts/layout.test.ts', 'test/scripts/keyRecord.test.ts'];

/** Tests of all scripts that write records. */
const records = [...under('operations', 'recordOperations audit/listEvents records'), ...under('scripts', 'keyspace')];

/** Tests by file: the first pattern that matches the path applies. */
export const nearest = [
  [
    /^lua\/decide\.lua/,
    [...verify, ...ratelimits, 'test/decide/decider.test.ts', 'test/operations/rootKeys/expiry.test.ts'],
  ],
  [
    /decide\/limitChecks\/limitChecks/,
    [
      ...ratelimits,
      ...under('operations/ratelimits', 'setOverride'),
      ...under('operations/analytics', 'getRatelimits'),
      'test/operations/rootKeys/expiry.test.ts',
      'test/operations/contract.test.ts',
      'test/scripts/bounded.test.ts',
      ...window,
    ],
  ],
  [
    /verification\/(hold|held|expiredHolds|ownedWindows|packedCharges|slotEnds|identityCredits)|include\/(held|hold|settledHolds|identityBalance)|(lua|sweep)\/holds/,
    holds,
  ],
  [
    /decide\/(\w+\/)?(lease|settle|checkLeases|notedLeases|thisSession)|include\/(change|lease)|leases\/deactivate/,
    leases,
  ],
  [
    /verification\/(charge|adhocLimits|currentLimits|plansOfKey|newState|precheck|restriction|windowRepair)/,
    [...verify, ...window, 'test/lua/include/counters.test.ts', ...leases],
  ],
  [
    /verification\/(verify|answer|itemRequest|keyCounts)/,
    [...verify, ...analytics, 'test/decide/snapshots.test.ts', 'test/decide/decider.test.ts'],
  ],
  [
    /decide\/(apis|totals|usageByTag|notedRefusals)/,
    [
      ...analytics,
      ...under('operations/analytics', 'listRefusals'),
      'test/scripts/bounded.test.ts',
      'test/lua/include/usage.test.ts',
      ...verify,
      ...ratelimits,
      ...under('operations/keys', 'holds'),
    ],
  ],
  [
    /decide\/(roots|call|batch|again|kinds|registers)/,
    [...verify, ...ratelimits, 'test/operations/rootKeys/expiry.test.ts', 'test/decide/decider.test.ts'],
  ],
  [
    /decide\/(memo|permitted|verification\/keySnapshot)/,
    [
      ...verify,
      'test/decide/decider.test.ts',
      'test/decide/snapshots.test.ts',
      ...under('operations/permissions', 'setRolePermissions deletePermission'),
    ],
  ],
  [
    /verification\/(currentKey|loadedKey)/,
    [...verify, ...analytics, 'test/lua/include/counters.test.ts', 'test/decide/decider.test.ts'],
  ],
  [/include\/audit/, under('operations/audit', 'listEvents')],
  [/include\/calendar/, ['test/lua/include/calendar.test.ts', ...verify]],
  [/include\/clock/, [...verify, 'test/scripts/scripts.test.ts']],
  [/include\/counters/, ['test/lua/include/counters.test.ts', 'test/lua/include/identityKeys.test.ts', ...verify]],
  [/include\/rootGrants/, ['test/domain/grants.test.ts', ...verify, 'test/operations/permissionTable.test.ts']],
  [
    /include\/(identities|packedIdentity|relinking)/,
    [
      'test/lua/include/identityKeys.test.ts',
      ...under('operations/identities', 'updateIdentity createIdentity getIdentity deleteIdentity'),
    ],
  ],
  [/include\/(ids|keyIds)/, ['test/lua/include/ids.test.ts', ...keys, 'test/operations/apis/listKeys.test.ts']],
  [/keys\/inspect/, inspection],
  [
    /include\/(keyRecords|limitEnds|limitList|records|refills|state)/,
    [
      ...state,
      ...inspection,
      ...keys,
      'test/lua/include/counters.test.ts',
      'test/lua/include/ends.test.ts',
      ...verify,
      'test/operations/records.test.ts',
    ],
  ],
  [/lua\/limits/, [...under('operations/ratelimits', 'listTemporary'), 'test/lua/include/ends.test.ts']],
  [/include\/nameOf/, [...verify, 'test/scripts/keyspace.test.ts', ...ratelimits]],
  [
    /include\/overrides|include\/overrideRecords|sweep\/ended/,
    [
      ...under('operations/ratelimits', 'setOverride listOverrides deleteOverride temporaryOverrides listTemporary'),
      'test/lua/include/ends.test.ts',
      'test/lua/include/overrides.test.ts',
      ...ratelimits,
    ],
  ],
  [
    /include\/(permissions|rbac|roles)/,
    [
      ...verify,
      ...under(
        'operations/permissions',
        'permissions setRolePermissions listRoles listPermissions deletePermission deleteRole',
      ),
      ...under('operations/keys', 'permissionsAndRoles createKey getKey'),
    ],
  ],
  [/include\/reply/, [...under('operations/permissions', 'listRoles'), 'test/operations/large.test.ts']],
  [
    /include\/rootKeys|lua\/rootKeys/,
    [...under('operations/rootKeys', 'createRootKey updateRootKey deleteRootKey listRootKeys expiry')],
  ],
  [/include\/usage/, ['test/lua/include/usage.test.ts', ...verify, ...analytics]],
  [
    /include\/window/,
    [...ratelimits, ...window, ...holds, ...inspection, 'test/lua/include/counters.test.ts', ...verify],
  ],
  [/lua\/analytics/, analytics],
  [/lua\/apis/, under('operations/apis', 'createApi getApi updateApi deleteApi listKeys')],
  [
    /lua\/identities/,
    under('operations/identities', 'updateIdentity createIdentity getIdentity deleteIdentity listIdentities'),
  ],
  [
    /keys\/(create|list)/,
    [
      ...under('operations/keys', 'createKey migrateKeys'),
      'test/operations/apis/listKeys.test.ts',
      'test/operations/records.test.ts',
    ],
  ],
  [/keys\/delete/, under('operations/keys', 'deleteKey')],
  [/keys\/export/, ['test/cli/keyLines.test.ts']],
  [/keys\/read/, under('operations/keys', 'getKey whoami')],
  [/keys\/reroll/, under('operations/keys', 'rerollKey')],
  [/keys\/set/, under('operations/keys', 'permissionsAndRoles')],
  [/keys\/updateCredits/, under('operations/keys', 'updateCredits')],
  [/keys\/update/, under('operations/keys', 'updateKey')],
  [
    /lua\/(namespaces|overrides)/,
    under('operations/ratelimits', 'setOverride getOverride listOverrides deleteOverride temporaryOverrides'),
  ],
  [/lua\/permissions/, under('operations/permissions', 'permissions listPermissions deletePermission')],
  [/lua\/roles/, under('operations/permissions', 'permissions listRoles deleteRole setRolePermissions')],
  [/lua\/(sweep|workspaces)/, ['test/sweeper.test.ts', 'test/scripts/bounded.test.ts', ...verify, ...analytics]],
];

/** Further tests for every mutant, in this order. Each pattern is one run of vitest. */
const wider = [
  /^test\/(domain|operations)\//,
  /^test\/(decide|input|lua|records|redis|scripts|usage)\/|^test\/(sweeper|atomicity|model)\.test/,
];

/** Tests that are not run, because they measure speed or restart a Redis, and take longer than all others. */
const leftOut = /^test\/(scripts\/durable|redis\/embedded|operations\/large)\.test/;

/**
 * The test files for a mutant of `file`, in steps; with `onlyNear` only those for the file. `all`: paths of all test
 * files.
 */
export function stepsFor(file, all, onlyNear) {
  const [, first = []] = nearest.find(([pattern]) => pattern.test(file)) ?? [];
  const tests = [...new Set(/^lua\/(?!decide)/.test(file) ? [...first, ...records] : first)];
  const missing = tests.filter((path) => !all.includes(path));
  if (missing.length > 0) throw new Error(`bin/mutants/tests.mjs names ${missing[0]}, which does not exist`);
  const rest = all.filter((path) => !tests.includes(path) && !leftOut.test(path));
  const steps = [tests.slice(0, 1), tests.slice(1)];
  if (!onlyNear) steps.push(...wider.map((pattern) => rest.filter((path) => pattern.test(path))));
  return steps.filter((step) => step.length > 0);
}
