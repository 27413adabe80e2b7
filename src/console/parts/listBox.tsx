// The options of a field that suggests some. The focus stays in the field, which has the keyboard.

import { useEffect, useRef } from 'preact/hooks';

interface ListBoxProps {
  id: string;
  label: string;
  options: readonly { title: string; note?: string | undefined }[];
  /** The position of the one that Enter chooses. */
  at: number;
  choose: (position: number) => void;
}

export function ListBox({ id, label, options, at, choose }: ListBoxProps) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current!.children[at]?.scrollIntoView({ block: 'nearest' });
  }, [at]);
  return (
    <div id={`${id}-list`} role="listbox" aria-label={label} ref={list}>
      {options.map(({ title, note }, position) => (
        <div
          key={position}
          id={`${id}-${position}`}
          role="option"
          tabIndex={-1}
          aria-selected={position === at}
          onMouseDown={(event) => {
            event.preventDefault();
            choose(position);
          }}
        >
          {title} <span class="quiet">{note}</span>
        </div>
      ))}
    </div>
  );
}
