// Secrets that the page displays once, or waits for, and that are not saved, and forms that are filled in. While there
// is one, leaving the screen asks first: a link, Back, signing out, closing the tab. A session that the server ends is
// ended when the secret is saved; a form does not delay it.

import { useEffect, useLayoutEffect, useReducer } from 'preact/hooks';

const unsaved = new Set<object>();
/** Forms that are filled in. */
const filled = new Set<object>();
const isHeld = () => unsaved.size + filled.size > 0;
/** The address at which they are displayed. */
let heldAt = '';
/** Leaves the screen. Set until the question is answered. */
let asked: (() => void) | undefined;
/** Ends the session as soon as nothing is unsaved, and why. */
let ending: { end: () => void; reason: string } | undefined;
const listeners = new Set<() => void>();

function changed() {
  for (const listener of listeners) listener();
}

/** Draws a component again when something here changes. */
function useChanges() {
  const [, draw] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const listener = () => draw(undefined as never);
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
    };
  }, []);
}

function useHeld(isHeldNow: boolean, by: Set<object>) {
  // Before the browser handles another event.
  useLayoutEffect(() => {
    if (!isHeldNow) return undefined;
    const own = {};
    by.add(own);
    heldAt = location.href;
    return () => {
      by.delete(own);
      // A dialog with the secret may follow one that waited for it.
      setTimeout(endIfSaved);
    };
  }, [isHeldNow]);
}

/** While a secret is not saved, leaving asks. */
export const useUnsaved = (isUnsaved: boolean) => useHeld(isUnsaved, unsaved);
/** While a form is filled in, leaving asks. */
export const useFilled = (isFilled: boolean) => useHeld(isFilled, filled);

function endIfSaved() {
  if (unsaved.size > 0 || !ending) return;
  const { end } = ending;
  ending = undefined;
  end();
}

/** Leaves the screen or the form, after a question if something is not saved. */
export function leave(go: () => void) {
  if (!isHeld()) return go();
  asked = go;
  changed();
}

/** Ends the session immediately, or when nothing is unsaved. */
export function whenSaved(end: () => void, reason: string) {
  ending = { end, reason };
  changed();
  endIfSaved();
}

/** The question, and its answers; undefined while there is none. */
export function useQuestion(): { stay: () => void; leave: () => void; isOfSecret: boolean } | undefined {
  useChanges();
  const go = asked;
  if (!go) return undefined;
  const answer = (isLeaving: boolean) => {
    asked = undefined;
    if (isLeaving) {
      unsaved.clear();
      filled.clear();
      go();
    }
    changed();
  };
  return { stay: () => answer(false), leave: () => answer(true), isOfSecret: unsaved.size > 0 };
}

/** Why the session ends once the secret is saved; undefined if it does not. */
export function useEnding(): string | undefined {
  useChanges();
  return ending?.reason;
}

// Runs before the router.
addEventListener(
  'popstate',
  (event) => {
    if (!isHeld() || location.pathname === new URL(heldAt).pathname) return;
    event.stopImmediatePropagation();
    // Back and Forward cannot be prevented: the address is entered again, and the former one is one step back.
    history.pushState(null, '', heldAt);
    leave(() => history.back());
  },
  { capture: true },
);

addEventListener('beforeunload', (event) => {
  if (!isHeld()) return;
  event.preventDefault();
  // Browsers before 2024.
  event.returnValue = true;
});
