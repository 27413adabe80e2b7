// Every operation there is. Adding one: write its file, then name it here.

import { createApi } from './apis/createApi.ts';
import { deleteApi } from './apis/deleteApi.ts';
import { getApi } from './apis/getApi.ts';
import { listKeys } from './apis/listKeys.ts';
import { createKey } from './keys/createKey.ts';
import { deleteKey } from './keys/deleteKey.ts';
import { getKey } from './keys/getKey.ts';
import { rerollKey } from './keys/rerollKey.ts';
import { updateCredits } from './keys/updateCredits.ts';
import { updateKey } from './keys/updateKey.ts';
import { verifyKey } from './keys/verifyKey.ts';
import { whoami } from './keys/whoami.ts';
import { limit } from './ratelimits/limit.ts';
import { createRootKey } from './rootKeys/createRootKey.ts';
import { deleteRootKey } from './rootKeys/deleteRootKey.ts';
import { listRootKeys } from './rootKeys/listRootKeys.ts';
import { updateRootKey } from './rootKeys/updateRootKey.ts';

export const operations = [
  createApi,
  getApi,
  listKeys,
  deleteApi,
  createKey,
  verifyKey,
  getKey,
  whoami,
  updateKey,
  updateCredits,
  deleteKey,
  rerollKey,
  limit,
  createRootKey,
  listRootKeys,
  updateRootKey,
  deleteRootKey,
] as const;

export type Operations = typeof operations;
export type OperationName = Operations[number]['name'];
