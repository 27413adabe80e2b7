// The name of a key of which the data has only the id.

import { useData } from '../api.ts';
import type { Key } from '../records.ts';
import { may } from '../session.ts';

/** The name of a key, or how it starts where it has none. Its id where it may not be read. */
export function KeyName({ keyId }: { keyId: string }) {
  const { data } = useData<Key>('keys.getKey', may('api', 'read_key') ? { keyId } : undefined);
  return <span title={keyId}>{data?.name ?? <code>{data ? `${data.start}…` : keyId}</code>}</span>;
}
