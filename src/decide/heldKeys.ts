// What this process knows of the keys whose holds it made, so that the end of a hold finds its key without another
// round trip.

interface HeldKey {
  digest: string;
  /** The externalId that the key had then. */
  identity?: string | undefined;
}

/** Limit of the keys. */
const keysMax = 20_000;

export class HeldKeys {
  /** By workspace and key. */
  readonly #keys = new Map<string, HeldKey>();
  readonly #digestOf: (workspaceId: string, id24: string) => Promise<string | undefined>;

  constructor(digestOf: (workspaceId: string, id24: string) => Promise<string | undefined>) {
    this.#digestOf = digestOf;
  }

  note(workspaceId: string, id24: string, key: HeldKey) {
    if (this.#keys.size >= keysMax) this.#keys.clear();
    this.#keys.set(workspaceId + id24, key);
  }

  /** Undefined if there is no such key. */
  async find(workspaceId: string, id24: string): Promise<HeldKey | undefined> {
    const known = this.#keys.get(workspaceId + id24);
    if (known) return known;
    const digest = await this.#digestOf(workspaceId, id24);
    return digest === undefined ? undefined : { digest };
  }
}
