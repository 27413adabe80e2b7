// Metadata of keys, customers and plans: each field as a row.

import { Fragment } from 'preact';

type Meta = Record<string, unknown> | undefined;

/** Each field with its value. */
export const MetaRows = ({ meta = {} }: { meta: Meta }) =>
  Object.keys(meta).length === 0 ? (
    <span class="quiet">none</span>
  ) : (
    <dl>
      {Object.entries(meta).map(([name, value]) => (
        <Fragment key={name}>
          <dt>{name}</dt>
          <dd>{typeof value === 'string' ? value : <code>{JSON.stringify(value)}</code>}</dd>
        </Fragment>
      ))}
    </dl>
  );
