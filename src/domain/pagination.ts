// The position in a list, as `pagination` of a response. Schema and type are declared here for all sides.

import Type, { type Static } from 'typebox';

const count = (description: string) => Type.Integer({ description });

export const Pagination = Type.Object(
  {
    hasMore: Type.Boolean({ description: 'True if there is another page.' }),
    cursor: Type.Optional(Type.String({ description: 'Cursor of the next page. Absent on the last page.' })),
    looked: Type.Optional(count('Number of items that were examined for this page. Some lists only.')),
    total: Type.Optional(count('Number of items in the whole list. Some lists only.')),
    since: Type.Optional(count('Of listRefusals: the earliest time that is listed, in Unix milliseconds.')),
    counted: Type.Optional(
      Type.Array(
        Type.Object({
          time: count('Beginning of the hour in Unix milliseconds.'),
          refused: Type.Optional(count('Number of refusals. Absent if the counts are too many to be read at once.')),
          listed: count('How many of them the rows of the hour account for. The others have no row.'),
        }),
        {
          description:
            'Of listRefusals: each hour with refusals that match the filters besides `start`, `end` and `limit`, latest first, as far as this page reaches. An hour on two pages is reported by both.',
        },
      ),
    ),
  },
  { description: 'Position in the list.' },
);
export type Pagination = Static<typeof Pagination>;
