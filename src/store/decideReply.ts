// The reply of lua/decide.lua to a batch, taken apart: a head with the time and the length of every answer, the answers, and
// the snapshots of keys. Each answer is read between its own bounds, so one that cannot be read spoils no other one, and no
// caller gets bytes of another one's.

/** One answer, from `at` to `end`. */
export interface Answer {
  packed: Buffer;
  at: number;
  end: number;
  /** The snapshot of the key that came with it. */
  shown: Buffer | undefined;
  /** When the batch was decided, on Redis's clock. */
  atMs: number;
}

export const unreadable = () => new Error('decide: an answer of the script cannot be read.');

/** Added to the length of an answer that a snapshot came with. */
const WITH_SHOWN = 32_768;

/**
 * The answers to the first of `asked` items, at least one. Throws when the head does not fit what follows it: then nothing of
 * the reply can be trusted.
 */
export function readReply(packed: Buffer, shown: readonly Buffer[], asked: number): Answer[] {
  const count = packed[6] ?? 0;
  let at = 7 + 2 * count;
  if (count === 0 || count > asked || packed.length < at) throw unreadable();
  const atMs = packed.readUIntBE(0, 6);
  const answers: Answer[] = [];
  let shownAt = 0;
  for (let index = 0; index < count; index++) {
    const length = packed.readUInt16BE(7 + 2 * index);
    const hasShown = length >= WITH_SHOWN;
    const end = at + (hasShown ? length - WITH_SHOWN : length);
    if (end === at) throw unreadable();
    answers.push({ packed, at, end, shown: hasShown ? shown[shownAt++] : undefined, atMs });
    at = end;
  }
  if (at !== packed.length || shownAt !== shown.length) throw unreadable();
  return answers;
}

export const readUInt56 = (buffer: Buffer, at: number): number =>
  buffer.readUIntBE(at, 3) * 2 ** 32 + buffer.readUInt32BE(at + 3);
