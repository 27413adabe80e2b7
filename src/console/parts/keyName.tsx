// The name of a key, as it is displayed and linked. Imported keys may have neither a name nor a start.

import { useData } from '../api.ts';
import type { Key } from '../records.ts';
import { may } from '../session.ts';
import { Badge } from './basic.tsx';

type Named = Pick<Key, 'keyId' | 'name' | 'start' | 'successor'>;

/** The name of a key, or how its string starts, or its id. */
export const nameOf = ({ keyId, name, start }: Named): string => name || (start === '' ? keyId : `${start}…`);

/** A name, or code in place of it. A key that was rotated has the name of its successor, and a mark. */
export const KeyLabel = ({ of }: { of: Named }) => (
  <>
    {of.name ? <span>{of.name}</span> : <code>{nameOf(of)}</code>}
    {of.successor && (
      <>
        {' '}
        <Badge>replaced</Badge>
      </>
    )}
  </>
);

/** The start of a key next to its name. */
export const KeyStart = ({ of: { name, start } }: { of: Named }) =>
  name && start !== '' ? <code class="quiet">{start}…</code> : null;

/** The name of a key by its id. The id itself if the root key may not read the key. */
export function KeyName({ keyId }: { keyId: string }) {
  const { data } = useData<Key>('keys.getKey', may('api', 'read_key') ? { keyId } : undefined);
  return <span title={keyId}>{data ? <KeyLabel of={data} /> : <code>{keyId}</code>}</span>;
}
