// Metadata of keys and customers: each field as a row, and one of them as a column of a list.

import { Fragment } from 'preact';
import { useAddress } from '../address.ts';
import { SelectField } from './basic.tsx';
import type { Column } from './table.tsx';

type Meta = Record<string, unknown> | undefined;

const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));

/** Each field with its value. */
export const MetaRows = ({ meta = {} }: { meta: Meta }) =>
  Object.keys(meta).length === 0 ? (
    <span class="quiet">none</span>
  ) : (
    <dl>
      {Object.entries(meta).map(([name, value]) => (
        <Fragment key={name}>
          <dt>{name}</dt>
          <dd>{textOf(value)}</dd>
        </Fragment>
      ))}
    </dl>
  );

/**
 * The column of the field of metadata that the address names, if it names one, and the choice among those of the rows.
 */
export function useMetaColumn<Row extends { meta?: Meta }>(rows: readonly Row[]) {
  const [{ meta: name }, set] = useAddress({ meta: '' });
  const names = [...new Set(rows.flatMap(({ meta = {} }) => Object.keys(meta)))].sort();
  const offered = name && !names.includes(name) ? [name, ...names] : names;
  const cell = ({ meta = {} }: Row) => (Object.hasOwn(meta, name) ? textOf(meta[name]) : undefined);
  const columns: Column<Row>[] = name ? [{ name, cell, csv: cell }] : [];
  const choice = offered.length > 0 && (
    <SelectField
      label="Column of metadata"
      value={name}
      set={(meta) => set({ meta })}
      options={[['', 'none'], ...offered.map((one) => [one, one] as const)]}
    />
  );
  return { columns, choice };
}
