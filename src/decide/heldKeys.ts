// The digests of keys whose holds this process made, so that the end of a hold finds its key without another round
// trip.

/** Limit of the keys. */
const keysMax = 20_000;

export class HeldKeys {
  /** Digests, by workspace and key. */
  readonly #keys = new Map<string, string>();
  readonly #digestOf: (workspaceId: string, id24: string) => Promise<string | undefined>;

  constructor(digestOf: (workspaceId: string, id24: string) => Promise<string | undefined>) {
    this.#digestOf = digestOf;
  }

  note(workspaceId: string, id24: string, digest: string) {
    if (this.#keys.size >= keysMax) this.#keys.clear();
    this.#keys.set(workspaceId + id24, digest);
  }

  /** The digest of a key; undefined if there is no such key. */
  async find(workspaceId: string, id24: string): Promise<string | undefined> {
    return this.#keys.get(workspaceId + id24) ?? this.#digestOf(workspaceId, id24);
  }
}
