// A new tab gets the sign-ins of an open one, by messages between the tabs of this browser that have the same origin.
// Nothing is stored. Any page of the origin can ask as well: an origin is one unit for a browser, whatever the path.

import { allSignIns, currentSignIn, isNewTab, type SignIn, takeSignIns } from './session.ts';

/** A question, or its answer. Any page of the origin may send other messages. */
interface Message {
  /** The id of the question. */
  asks?: string;
  to?: string;
  /** When the tab was used last. */
  usedAt?: number;
  signIns?: SignIn[];
}

/** A tab that is open responds within this time. A later response is used, too, unless the user has signed in. */
const waitMs = 250;
/** How long to wait for further responses: of several tabs, the one that was used last counts. */
const othersMs = 40;

const channel = 'BroadcastChannel' in globalThis ? new BroadcastChannel('tollgate.console') : undefined;
let usedAt = 0;
for (const event of ['pointerdown', 'keydown', 'focus']) {
  addEventListener(
    event,
    () => {
      usedAt = Date.now();
    },
    { capture: true },
  );
}

function isSignIn(value: unknown): value is SignIn {
  const { rootKey, workspaceId, name, grants, at } = (value ?? {}) as Partial<Record<keyof SignIn, unknown>>;
  const texts = [rootKey, workspaceId, name, ...(Array.isArray(grants) ? grants : [undefined])];
  return texts.every((text) => typeof text === 'string') && typeof at === 'number';
}

function answer(to: BroadcastChannel, question: string) {
  const current = currentSignIn();
  if (!current) return;
  // The current sign-in is first.
  const signIns = [current, ...allSignIns().filter((signIn) => signIn !== current)];
  to.postMessage({ to: question, usedAt, signIns } satisfies Message);
}

/** Resolves when the sign-ins of another tab have arrived, or no other tab is open. */
export function askOtherTabs(): Promise<void> {
  if (!channel) return Promise.resolve();
  const asks = isNewTab ? crypto.getRandomValues(new Uint32Array(4)).join() : undefined;
  return new Promise((resolve) => {
    let last: Message | undefined;
    const take = () => {
      takeSignIns(last?.signIns ?? []);
      resolve();
    };
    channel.onmessage = ({ data }: MessageEvent<Message | undefined>) => {
      const { asks: question, to, usedAt: used = 0, signIns } = data ?? {};
      if (question !== undefined) answer(channel, question);
      const isNewer = !last || used > last.usedAt!;
      if (asks === undefined || to !== asks || !signIns?.every?.(isSignIn) || !isNewer) return;
      if (!last) setTimeout(take, othersMs);
      last = { usedAt: used, signIns };
    };
    if (asks === undefined) return resolve();
    channel.postMessage({ asks } satisfies Message);
    setTimeout(resolve, waitMs);
  });
}
