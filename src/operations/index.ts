// All operations. To add one, write its file and add it here.

import { getRatelimits } from './analytics/getRatelimits.ts';
import { getTop } from './analytics/getTop.ts';
import { getVerifications } from './analytics/getVerifications.ts';
import { listCustomers } from './analytics/listCustomers.ts';
import { listRefusals } from './analytics/listRefusals.ts';
import { tail } from './analytics/tail.ts';
import { createApi } from './apis/createApi.ts';
import { deleteApi } from './apis/deleteApi.ts';
import { getApi } from './apis/getApi.ts';
import { listApis } from './apis/listApis.ts';
import { listKeys } from './apis/listKeys.ts';
import { restoreApi } from './apis/restoreApi.ts';
import { updateApi } from './apis/updateApi.ts';
import { listEvents } from './audit/listEvents.ts';
import { createIdentity } from './identities/createIdentity.ts';
import { deleteIdentity } from './identities/deleteIdentity.ts';
import { getIdentity } from './identities/getIdentity.ts';
import { listIdentities } from './identities/listIdentities.ts';
import { restoreIdentity } from './identities/restoreIdentity.ts';
import { updateCredits as updateIdentityCredits } from './identities/updateCredits.ts';
import { updateIdentity } from './identities/updateIdentity.ts';
import { addPermissions } from './keys/addPermissions.ts';
import { addRoles } from './keys/addRoles.ts';
import { changeKeys } from './keys/changeKeys.ts';
import { createKey } from './keys/createKey.ts';
import { deleteKey } from './keys/deleteKey.ts';
import { explainKey } from './keys/explainKey.ts';
import { extendHold } from './keys/extendHold.ts';
import { getAttention } from './keys/getAttention.ts';
import { getKey } from './keys/getKey.ts';
import { listHolds } from './keys/listHolds.ts';
import { listKeys as listAllKeys } from './keys/listKeys.ts';
import { migrateKeys } from './keys/migrateKeys.ts';
import { releaseHold } from './keys/releaseHold.ts';
import { removePermissions } from './keys/removePermissions.ts';
import { removeRoles } from './keys/removeRoles.ts';
import { rerollKey } from './keys/rerollKey.ts';
import { restoreKey } from './keys/restoreKey.ts';
import { setPermissions } from './keys/setPermissions.ts';
import { setRoles } from './keys/setRoles.ts';
import { settleHold } from './keys/settleHold.ts';
import { updateCredits } from './keys/updateCredits.ts';
import { updateKey } from './keys/updateKey.ts';
import { verifyKey } from './keys/verifyKey.ts';
import { whoami } from './keys/whoami.ts';
import { createPermission } from './permissions/createPermission.ts';
import { createRole } from './permissions/createRole.ts';
import { deletePermission } from './permissions/deletePermission.ts';
import { deleteRole } from './permissions/deleteRole.ts';
import { getPermission } from './permissions/getPermission.ts';
import { getRole } from './permissions/getRole.ts';
import { listPermissions } from './permissions/listPermissions.ts';
import { listRoles } from './permissions/listRoles.ts';
import { setRolePermissions } from './permissions/setRolePermissions.ts';
import { updatePermission } from './permissions/updatePermission.ts';
import { updateRole } from './permissions/updateRole.ts';
import { createPlan } from './plans/createPlan.ts';
import { deletePlan } from './plans/deletePlan.ts';
import { getPlan } from './plans/getPlan.ts';
import { listPlans } from './plans/listPlans.ts';
import { updatePlan } from './plans/updatePlan.ts';
import { deleteOverride } from './ratelimits/deleteOverride.ts';
import { getOverride } from './ratelimits/getOverride.ts';
import { limit } from './ratelimits/limit.ts';
import { listNamespaces } from './ratelimits/listNamespaces.ts';
import { listOverrides } from './ratelimits/listOverrides.ts';
import { listTemporary } from './ratelimits/listTemporary.ts';
import { multiLimit } from './ratelimits/multiLimit.ts';
import { setOverride } from './ratelimits/setOverride.ts';
import { createKey as createRootKeyAsKey } from './rootKeys/createKey.ts';
import { createRootKey } from './rootKeys/createRootKey.ts';
import { deleteKey as deleteRootKeyAsKey } from './rootKeys/deleteKey.ts';
import { deleteRootKey } from './rootKeys/deleteRootKey.ts';
import { listKeys as listRootKeysAsKeys } from './rootKeys/listKeys.ts';
import { listRootKeys } from './rootKeys/listRootKeys.ts';
import { rerollKey as rerollRootKey } from './rootKeys/rerollKey.ts';
import { updateKey as updateRootKeyAsKey } from './rootKeys/updateKey.ts';
import { updateRootKey } from './rootKeys/updateRootKey.ts';
import { whoamiRootKey } from './rootKeys/whoami.ts';
import { find } from './system/find.ts';
import { getStatus } from './system/getStatus.ts';
import { getLimits } from './workspace/getLimits.ts';
import { getSettings } from './workspace/getSettings.ts';
import { getUsage } from './workspace/getUsage.ts';
import { updateSettings } from './workspace/updateSettings.ts';

export const operations = [
  createApi,
  getApi,
  listApis,
  listKeys,
  updateApi,
  deleteApi,
  restoreApi,
  createKey,
  verifyKey,
  settleHold,
  extendHold,
  releaseHold,
  listHolds,
  explainKey,
  getKey,
  listAllKeys,
  getAttention,
  whoami,
  updateKey,
  updateCredits,
  deleteKey,
  restoreKey,
  changeKeys,
  rerollKey,
  migrateKeys,
  addPermissions,
  removePermissions,
  setPermissions,
  addRoles,
  removeRoles,
  setRoles,
  limit,
  multiLimit,
  listNamespaces,
  setOverride,
  getOverride,
  listOverrides,
  deleteOverride,
  listTemporary,
  createIdentity,
  getIdentity,
  listIdentities,
  updateIdentity,
  updateIdentityCredits,
  deleteIdentity,
  restoreIdentity,
  createPermission,
  getPermission,
  listPermissions,
  updatePermission,
  deletePermission,
  createRole,
  getRole,
  listRoles,
  updateRole,
  deleteRole,
  setRolePermissions,
  createPlan,
  deletePlan,
  getPlan,
  listPlans,
  updatePlan,
  getVerifications,
  getTop,
  getRatelimits,
  listCustomers,
  listRefusals,
  tail,
  createRootKey,
  listRootKeys,
  whoamiRootKey,
  updateRootKey,
  deleteRootKey,
  createRootKeyAsKey,
  listRootKeysAsKeys,
  updateRootKeyAsKey,
  rerollRootKey,
  deleteRootKeyAsKey,
  listEvents,
  getSettings,
  updateSettings,
  getUsage,
  getLimits,
  getStatus,
  find,
] as const;

export type Operations = typeof operations;
export type OperationName = Operations[number]['name'];
