// The address of a screen contains its filters and its period, so that reload, Back and a link to a colleague display
// the same. The browser keeps addresses, and others see them, so they must not contain a secret.

import { useEffect, useRef, useState } from 'preact/hooks';
import { useSearch } from 'wouter-preact';

/** Changes the parameters of the address. A parameter with its usual value is removed. */
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

/** Parameters of the address, and a function that changes some of them. `usual` has their defaults. */
export function useAddress<Usual extends Record<string, string>>(usual: Usual) {
  const query = new URLSearchParams(useSearch());
  const values: Record<string, string> = {};
  for (const [name, value] of Object.entries(usual)) values[name] = query.get(name) || value;
  const set = (changes: { [Name in keyof Usual]?: string }, isTyped = false) => enter(changes, usual, isTyped);
  return [values as { [Name in keyof Usual]: string }, set] as const;
}

/**
 * Whether a text may be part of a key string that was pasted into a search: a long word with digits, signs or capitals
 * inside.
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

/** A text that the user types. `settled` is its value at the last pause. */
export function useTyped(name: string, ms?: number) {
  // A new search starts at page 1.
  const [address, set] = useAddress({ [name]: '', pages: '' });
  const inAddress = address[name]!;
  const [text, setText] = useState(inAddress);
  const settled = useSettled(text.trim(), ms);
  /** The text that this field last read from the address or wrote to it. */
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
 * Enters a typed text into the address. A text that may be secret is entered only after it has found something: then
 * the result contains it, and is on the screen anyway. `isFound` is undefined until the search ends.
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
