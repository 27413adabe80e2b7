// What a screen displays, in its address: reload, Back and a link to a colleague display the same. An address is kept
// by the browser and is seen by others, so no secret may get into it.

import { useEffect, useRef, useState } from 'preact/hooks';
import { useSearch } from 'wouter-preact';

/** Changes the parameters of the address. Those with their usual value are left out. */
function enter(changes: Record<string, string | undefined>, usual: Record<string, string>, isTyped: boolean) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === usual[name]) query.delete(name);
    else query.set(name, value);
  }
  const search = query.size > 0 ? `?${query}` : '';
  if (search === location.search) return;
  // Back leads to the choice before, but not to each pause in typing.
  history[isTyped ? 'replaceState' : 'pushState'](null, '', location.pathname + search);
}

/** Parameters of the address, and a function that changes some of them. `usual` has the value of each without one. */
export function useAddress<Usual extends Record<string, string>>(usual: Usual) {
  const query = new URLSearchParams(useSearch());
  const values: Record<string, string> = {};
  for (const [name, value] of Object.entries(usual)) values[name] = query.get(name) || value;
  const set = (changes: { [Name in keyof Usual]?: string }, isTyped = false) => enter(changes, usual, isTyped);
  return [values as { [Name in keyof Usual]: string }, set] as const;
}

/**
 * Whether a text could be a part of a key string, which somebody pasted into a search. Long words with digits, signs or
 * capitals inside could; other words are no secrets.
 */
const mayBeSecret = (text: string): boolean =>
  text.split(/\s+/).some((word) => word.length > 7 && !/^\p{L}[\p{Ll}\p{Lo}\p{M}]*$/u.test(word));

/** The text after a pause in typing, so that a search is not sent with every letter. */
export function useSettled(text: string, ms = 200): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), ms);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

/** A text that is typed. `settled` is what it was in the last pause. */
export function useTyped(name: string, ms?: number) {
  // Another text has a list of its own, which begins with its first page.
  const [address, set] = useAddress({ [name]: '', pages: '' });
  const inAddress = address[name]!;
  const [text, setText] = useState(inAddress);
  const settled = useSettled(text.trim(), ms);
  /** What this field has read from the address or written there. */
  const entered = useRef(inAddress);
  useEffect(() => {
    // Back, Forward or a link.
    if (inAddress === entered.current) return;
    entered.current = inAddress;
    setText(inAddress);
  }, [inAddress]);
  const write = (value: string) => {
    entered.current = value;
    set({ [name]: value, pages: '' }, true);
  };
  return { text, setText, settled, entered, write };
}

/**
 * Enters a typed text into the address. One that may be secret is entered only when it has found something: what is
 * found by it contains it, and is displayed anyway. `isFound` is undefined until that is known.
 */
export function useInAddress(typed: ReturnType<typeof useTyped>, isFound: boolean | undefined) {
  const { text, settled, entered, write } = typed;
  useEffect(() => {
    const isKnown = isFound !== undefined || settled !== entered.current;
    if (text.trim() !== settled || !isKnown) return;
    const next = isFound || !mayBeSecret(settled) ? settled : '';
    if (next !== entered.current) write(next);
  }, [text, settled, isFound]);
}
