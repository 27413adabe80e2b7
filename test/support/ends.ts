// Compares the index of temporary limits and overrides by their end with the records of a workspace.

import type { snippets } from './snippet.ts';

/**
 * Returns two lists of member, end, member, end, …: the entries that all keys, identities and overrides should have in
 * the index, and the entries that it has.
 */
const read = `
local workspace, found = KEYS[1], {}
local function add(member, ends)
  found[#found + 1] = member
  found[#found + 1] = int(ends)
end
local function add_limits(owner, limits)
  for _, l in ipairs(limits) do
    if l.ends then add(name_of.limit_end(owner, l.name), l.ends) end
  end
end
for _, api16 in ipairs(redis.call('ZRANGE', name_of.api_list(workspace), 0, -1)) do
  for _, member in ipairs(redis.call('ZRANGE', name_of.key_list(workspace, string.sub(api16, 9)), 0, -1)) do
    local record = name_of.key_record(workspace, string.sub(member, 13))
    local state = read_state(redis.call('HGET', record, 'state'))
    add_limits(state.id, state.limits)
  end
end
for _, member in ipairs(redis.call('ZRANGE', name_of.identity_list(workspace), 0, -1)) do
  local record = name_of.identity_record(workspace, string.sub(member, 17))
  add_limits(string.sub(member, 1, 16), packed_identity.read(redis.call('HGET', record, 'state')).limits)
end
for _, namespace16 in ipairs(redis.call('HKEYS', name_of.namespace_names(workspace))) do
  for _, identifier in ipairs(redis.call('HKEYS', name_of.overrides(workspace, namespace16))) do
    local override = read_override(workspace, { id16 = namespace16 }, identifier, 0)
    if override.ends then add(name_of.override_end(namespace16, override.id16), override.ends) end
  end
end
return { found, redis.call('ZRANGE', name_of.ends(workspace), 0, -1, 'WITHSCORES') }`;

/**
 * Entries of the index without a record, and records without an entry. What has ended may be in both or in neither:
 * the sweeper removes it from the index, and the next decision or change from the record. Keys of deleted APIs are in
 * the index until the sweeper removes them. Also returns how many entries the index has.
 */
export async function endFaults(
  snippet: ReturnType<typeof snippets>,
  workspaceId: string,
  now: number,
): Promise<{ faults: string[]; count: number }> {
  const [records, index] = (await snippet.run(read, `tg:{${workspaceId}}`, [])) as [string[], string[]];
  const linesOf = (flat: string[]) =>
    new Set(flat.flatMap((member, at) => (at % 2 === 0 ? [`${member} ends at ${flat[at + 1]}`] : [])));
  const [expected, has] = [linesOf(records), linesOf(index)];
  const hasEnded = (line: string) => Number(line.slice(line.lastIndexOf(' ') + 1)) <= now;
  return {
    faults: [
      ...[...expected].filter((line) => !has.has(line) && !hasEnded(line)).map((line) => `missing: ${line}`),
      ...[...has].filter((line) => !expected.has(line)).map((line) => `left behind: ${line}`),
    ],
    count: has.size,
  };
}
