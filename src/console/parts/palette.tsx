// Finds keys, customers, APIs, plans, screens and actions from any screen, and the shortcuts that lead to it.

import { useEffect, useRef, useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { parseHoldId } from '../../domain/holdId.ts';
import { useSettled } from '../address.ts';
import { count } from '../format.ts';
import { customerPath, planPath } from '../paths.ts';
import type { Found } from '../records.ts';
import { may } from '../session.ts';
import { Button, Problem } from './basic.tsx';
import { Dialog } from './dialog.tsx';
import { type Results, useResults } from './found.ts';
import { nameOf } from './keyName.tsx';
import { ListBox } from './listBox.tsx';
import { Examined } from './table.tsx';

/** A screen that the grants allow. `g` and then the letter open it. */
export type Screen = Record<'path' | 'name' | 'letter', string>;

interface Option {
  title: string;
  note?: string | undefined;
  act: () => void;
}

/** The buttons and links of the screen behind, or of the menu. What the grants exclude is not among them. */
const controls = (place = 'main :is(.head, .card-head) .actions') => [
  ...document.querySelectorAll<HTMLElement>(`${place} :is(button:not(:disabled), a)`),
];
/** Clicks when the palette is closed, and the screen is drawn. */
const click = (find: () => HTMLElement | undefined) => setTimeout(() => find()?.click());

/** Forms of new records: the button and its screen, and the resource and the id of the grants they need. */
const forms = [
  ['New API', '/apis', 'api', '*'],
  ['New customer', '/customers', 'identity', undefined],
  ['New plan', '/plans', 'plan', undefined],
  ['New root key', '/access', 'root_key', undefined],
] as const;

function actions(screens: readonly Screen[], go: (path: string) => void): Option[] {
  const made = forms.filter(([, , resource, id]) =>
    ['create', 'read'].every((act) => may(resource, `${act}_${resource}`, id)),
  );
  const pressing = (control: HTMLElement) => ({
    title: control.textContent ?? '',
    note: control.closest('.card-head')?.querySelector('h2')?.textContent ?? '',
    act: () => click(() => control),
  });
  return [
    ...controls().map(pressing),
    ...screens.map(({ name, path, letter }) => ({ title: name, note: `Screen · g ${letter}`, act: () => go(path) })),
    ...made.map(([title, path]) => ({
      title: `${title} …`,
      act: () => {
        go(path);
        click(() => controls().find(({ textContent }) => textContent === title));
      },
    })),
    ...controls('.side-foot').map(pressing),
  ];
}

/** Whether each word of the text begins a word of the option. */
function isNamed({ title, note = '' }: Option, text: string): boolean {
  const words = `${title} ${note}`.toLowerCase().split(/[^\p{L}\p{N}]+/u);
  const starts = text.toLowerCase().split(/\s+/);
  return starts.every((start) => words.some((word) => word.startsWith(start)));
}

/** The kinds, with the screen that lists them. */
const kinds = {
  key: ['Key', '/keys'],
  identity: ['Customer', '/customers'],
  api: ['API', '/apis'],
  plan: ['Plan', '/plans'],
  rootKey: ['Root key', '/access'],
  hold: ['Hold', '/keys'],
} as const;

function pathOf({ kind, id, externalId, deleted }: Found): string {
  if (kind === 'identity') return customerPath(externalId ?? id);
  if (kind === 'plan') return planPath(id);
  if (kind === 'hold') return `/keys/key_${parseHoldId(id)?.id24}`;
  if (deleted) return `/keys?state=deleted&search=${id}`;
  return kind === 'rootKey' ? '/access' : `${kinds[kind][1]}/${id}`;
}

/** Exact ones first; then those of each kind, with the list that has more of them. */
function optionsOf({ found, lists }: Results, text: string, go: (path: string) => void): [Option[], Option[]] {
  const optionOf = (item: Found): Option => {
    const { kind, id, name, start = '', externalId, deleted } = item;
    const title = kind === 'key' ? nameOf({ keyId: id, name, start }) : (name ?? externalId ?? id);
    const notes = [kinds[kind][0], deleted && 'deleted', start && `${start}…`, externalId, kind !== 'key' && id];
    return { title, note: notes.filter((note) => note && note !== title).join(' · '), act: () => go(pathOf(item)) };
  };
  const others = Object.entries(kinds).flatMap(([kind, [name, path]]) => [
    ...found.filter((item) => item.kind === kind && !item.exact).map(optionOf),
    // What was found has the text, so it may be in the address.
    ...lists
      .filter((list) => list.kind === kind && list.hasMore)
      .map(() => ({ title: `All ${name}s`, note: text, act: () => go(`${path}?search=${encodeURIComponent(text)}`) })),
  ]);
  return [found.filter(({ exact }) => exact).map(optionOf), others];
}

export function Palette({ screens, close }: { screens: readonly Screen[]; close: () => void }) {
  const [, go] = useLocation();
  const [text, setText] = useState('');
  const [active, setActive] = useState<{ at: number; name: string }>();
  const wanted = text.trim();
  const settled = useSettled(wanted);
  const results = useResults(settled);
  const [acts] = useState(() => actions(screens, go));
  const isPending = wanted !== '' && (settled !== wanted || !results.isFound);
  const [exact, others] = settled === wanted ? optionsOf(results, wanted, go) : [[], []];
  const options = [...exact, ...acts.filter((one) => isNamed(one, wanted)), ...others];
  const names = options.map(({ title, note }) => `${title} ${note}`);
  // What was chosen by an arrow key stays when others come before it.
  const at = active && names[active.at] !== active.name ? Math.max(0, names.indexOf(active.name)) : (active?.at ?? 0);
  const choose = (option: Option) => {
    close();
    option.act();
  };
  /** Enter was pressed before there was a response. */
  const [isAwaited, setAwaited] = useState(false);
  useEffect(() => {
    if (isPending || !isAwaited) return;
    setAwaited(false);
    if (options[0]) choose(options[0]);
  }, [isPending, isAwaited]);
  const type = (typed: string) => {
    setText(typed);
    setActive(undefined);
    setAwaited(false);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = (at + step + options.length) % Math.max(1, options.length);
    setActive({ at: next, name: names[next] ?? '' });
  };
  const enter = (event: Event) => {
    event.preventDefault();
    // What is found may come before what is displayed.
    if (isPending && active === undefined) setAwaited(true);
    else if (options[at]) choose(options[at]);
  };
  return (
    <Dialog title="Find" close={close}>
      <form class="palette" onSubmit={enter}>
        <input
          type="text"
          role="combobox"
          aria-label="Find"
          aria-expanded
          aria-autocomplete="list"
          aria-controls="palette-list"
          aria-activedescendant={options.length > 0 ? `palette-${at}` : undefined}
          autocomplete="off"
          spellcheck={false}
          // Of a key string.
          maxLength={512}
          placeholder="Name, id, customer, key …"
          value={text}
          onInput={(e) => type(e.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
        <ListBox
          id="palette"
          label="Found"
          options={options}
          at={at}
          choose={(position) => choose(options[position]!)}
        />
        <State results={results} isPending={isPending} number={wanted && options.length} />
      </form>
    </Dialog>
  );
}

function State(props: { results: Results; isPending: boolean; number: number | '' }) {
  const { results, isPending, number } = props;
  const searched = results.lists.map(({ pages }) => pages).filter(({ isSearching }) => isSearching);
  const hint =
    'Names, ids, customers, hashes, starts and whole strings of keys, screens, actions. Ctrl K, / and ? open this; g and ' +
    'a letter a screen. In a list of keys, Shift chooses all up to a box.';
  return (
    <>
      <p role="status">{isPending ? 'Searching …' : number === '' ? hint : `${count(number)} found`}</p>
      {searched[0] && (
        <div class="actions">
          <Examined of={searched[0]} />
          <Button onClick={() => searched.map(({ stop }) => stop())}>Stop</Button>
        </div>
      )}
      <Problem failure={results.failure} />
    </>
  );
}

/** `g` and the letter of a screen within this time. */
const letterMs = 1500;

/** Listens for shortcuts, except where a text is typed and in dialogs. */
export function useShortcuts(screens: readonly Screen[], open: () => void) {
  const [, go] = useLocation();
  const goesUntil = useRef(0);
  useEffect(() => {
    const listener = (event: KeyboardEvent) => {
      const { key, ctrlKey, metaKey, altKey, target, timeStamp } = event;
      if (document.querySelector('dialog[open]')) return;
      const isGoing = timeStamp < goesUntil.current;
      goesUntil.current = 0;
      const isFind = (ctrlKey || metaKey) && !altKey && key === 'k';
      const field = 'input:not([type=checkbox], [type=radio]), textarea, select';
      const isTyping = ctrlKey || metaKey || altKey || (target instanceof Element && target.closest(field));
      if (isTyping && !isFind) return;
      const screen = isGoing && screens.find(({ letter }) => letter === key);
      if (screen) return go(screen.path);
      if (key === 'g') goesUntil.current = timeStamp + letterMs;
      if (!isFind && key !== '/' && key !== '?') return;
      event.preventDefault();
      const search = key === '/' && document.querySelector<HTMLInputElement>('main input[type=search]');
      if (search) search.focus();
      else open();
    };
    addEventListener('keydown', listener);
    return () => removeEventListener('keydown', listener);
  });
}
