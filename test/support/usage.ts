// Usage histories of keys in the format of lua/include/usage.lua, for tests that cannot wait until the server writes them.

import { workspaceKey } from '../../src/store/keyspace.ts';
import { outcomesCounted } from '../../src/store/layout.ts';

/** An hour with 3 VALID, each for one credit, and 1 DISABLED, without an identity. */
function hourEntry(hour: number): Buffer {
  const entry = Buffer.alloc(21);
  entry.writeUInt32BE(hour, 0);
  entry[4] = 1 + 2 + 2 ** outcomesCounted;
  entry.writeUInt32BE(3, 5);
  entry.writeUInt32BE(1, 9);
  entry.writeUInt32BE(3, 16);
  return entry;
}

const monthOf = (hour: number) => new Date(hour * 3_600_000).toISOString().slice(0, 7).replace('-', '');

/** The records of these hours (since 1970) of a key. */
export function keyRecordsOf(workspaceId: string, keyId: string, hours: readonly number[]) {
  const months = new Map<string, number[]>();
  for (const hour of hours) {
    const month = monthOf(hour);
    const known = months.get(month);
    if (known) known.push(hour);
    else months.set(month, [hour]);
  }
  return [...months].map(([month, of]) => ({
    name: `${workspaceKey(workspaceId)}:uk:${keyId.slice('key_'.length)}:${month}`,
    history: Buffer.concat(of.map(hourEntry)),
  }));
}
