// A new tab gets the sign-ins of an open one, by messages between the tabs of this browser that have the same origin.
// Nothing is stored. Any page of the origin can ask as well: an origin is one unit for a browser, whatever the path.

import { allSignIns, currentSignIn, isNewTab, type SignIn, takeSignIns } from './session.ts';

type Message =
  | { asks: string }
  | {
      /** The id of the question. */
      to: string;
      /** When the tab was used last. */
      usedAt: number;
      signIns: SignIn[];
    };

/** A tab that is open responds within this time. A later response is used, too, unless the user has signed in. */
const waitMs = 250;
/** After the first response: with several tabs, the one that was used last counts. */
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
  const isText = [rootKey, workspaceId, name].every((text) => typeof text === 'string');
  return isText && Array.isArray(grants) && typeof at === 'number';
}

/** Resolves when the sign-ins of another tab are there, or none is open. */
export function askOtherTabs(): Promise<void> {
  if (!channel) return Promise.resolve();
  const asks = isNewTab ? crypto.getRandomValues(new Uint32Array(4)).join() : undefined;
  return new Promise((resolve) => {
    let last: { usedAt: number; signIns: SignIn[] } | undefined;
    const take = () => {
      if (last) takeSignIns(last.signIns);
      resolve();
    };
    channel.onmessage = ({ data }: MessageEvent<Message>) => {
      if ('asks' in data) {
        const [current, all] = [currentSignIn(), allSignIns()];
        if (!current) return;
        const signIns = [current, ...all.filter((signIn) => signIn !== current)];
        channel.postMessage({ to: data.asks, usedAt, signIns } satisfies Message);
      } else if (data.to === asks && data.signIns?.every?.(isSignIn) && !(last && last.usedAt >= data.usedAt)) {
        if (!last) setTimeout(take, othersMs);
        last = data;
      }
    };
    if (asks === undefined) return resolve();
    channel.postMessage({ asks } satisfies Message);
    setTimeout(resolve, waitMs);
  });
}
