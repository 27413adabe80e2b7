// The settings of a workspace, as callers send and read them.

import Type from 'typebox';
import { out } from '../schemas.ts';

export const settings = {
  name: Type.String({ minLength: 1, maxLength: 255, description: 'Name of the workspace.' }),
  protectApis: out.flag('`apis.deleteApi` of an API with keys then needs its name in `confirm`.'),
};
