// The options of a field that suggests some. The focus stays in the field, which has the keyboard.

import { useEffect, useRef } from 'preact/hooks';

export interface Group<Option = { title: string; note?: string | undefined }> {
  /** '' for the only one. */
  label: string;
  options: readonly Option[];
}

/** `at` is the position of the one that Enter chooses. */
export function ListBox(props: {
  id: string;
  label: string;
  groups: readonly Group[];
  at: number;
  choose: (position: number) => void;
}) {
  const { id, label, groups, at, choose } = props;
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current!.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' });
  }, [at]);
  let number = 0;
  const option = ({ title, note }: Group['options'][number]) => {
    const position = number++;
    return (
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
    );
  };
  return (
    <div id={`${id}-list`} role="listbox" aria-label={label} ref={list}>
      {groups.map(({ label, options }) =>
        label === '' ? (
          options.map(option)
        ) : (
          // biome-ignore lint/a11y/useSemanticElements: a list box has groups and options only.
          <div key={label} role="group" aria-label={label}>
            {options.map(option)}
          </div>
        ),
      )}
    </div>
  );
}
