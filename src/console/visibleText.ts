// Texts of callers are displayed with a mark for each character that is not visible or that reorders others: ⟨U+202E⟩.
// This is done with every text and label that is drawn, so that no screen can forget it. Input fields contain the text
// itself.

import { options, type VNode } from 'preact';
import { markInvisible } from '../domain/visible.ts';

/** The text with marks. Ends of lines and tabs stay, as displayed commands have them. */
export const visible = (text: string): string =>
  markInvisible(text, (character) =>
    character === '\n' || character === '\t'
      ? character
      : `⟨U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}⟩`,
  );

const labels = ['title', 'aria-label', 'placeholder', 'label', 'alt'] as const;

/** Marks all texts that are drawn from now on. */
export function markAll() {
  const before = options.vnode;
  options.vnode = (vnode: VNode) => {
    const drawn = vnode as unknown as { type: unknown; props: string | Record<string, unknown> };
    if (typeof drawn.props === 'string') drawn.props = visible(drawn.props);
    else if (typeof drawn.type === 'string') {
      for (const label of labels) {
        const text = drawn.props[label];
        if (typeof text === 'string') drawn.props[label] = visible(text);
      }
    }
    before?.(vnode);
  };
}
