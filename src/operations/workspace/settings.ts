// The settings of a workspace, as callers send and read them.

import Type, { type Static } from 'typebox';
import { invalid } from '../rules.ts';
import { DescribedFields, out, Text } from '../schemas.ts';

const Origin = Text(1, 255, 'As browsers send it: `https://app.example.com`, without a path.');

/** Of `GET /v2/me`. */
const Me = DescribedFields(
  'Lets the holder of a key read its limits, credits and usage with the key itself, by `GET /v2/me`. Absent: that is off.',
  {
    origins: Type.Optional(
      Type.Array(Origin, {
        maxItems: 20,
        description:
          'Origins whose pages may read the answer in a browser. An origin that no browser sends is refused.',
      }),
    ),
    meta: Type.Optional(
      Type.Array(Text(1, 100, 'Name of a member.'), {
        maxItems: 20,
        description:
          'Top-level members of the metadata of the key and of its plan that are in the answer. By default none.',
      }),
    ),
  },
);

export const settings = {
  name: Type.String({ minLength: 1, maxLength: 255, description: 'Name of the workspace.' }),
  protectApis: out.flag('`apis.deleteApi` of an API with keys then needs its name in `confirm`.'),
  me: Me,
};

/** Refuses origins that no browser sends: they would never be allowed. */
export function checkMe(me: Static<typeof Me> | null | undefined) {
  for (const [index, origin] of (me?.origins ?? []).entries()) {
    const isOrigin = /^https?:[^*]+$/.test(origin) && URL.canParse(origin) && new URL(origin).origin === origin;
    if (isOrigin) continue;
    const fix = 'Write scheme, host in lower case, and a port that is not the usual one: https://app.example.com.';
    throw invalid(`body.me.origins[${index}]`, 'is not an origin as browsers send it', fix);
  }
}
