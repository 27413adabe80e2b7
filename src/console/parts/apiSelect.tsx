// A choice of an API. It is searched by the server, so there may be any number of them.

import { useRef, useState } from 'preact/hooks';
import { useSettled } from '../address.ts';
import { type Failure, useData } from '../api.ts';
import type { Api } from '../records.ts';
import { may, namedApis } from '../session.ts';
import { Field, TextField } from './basic.tsx';
import { ListBox } from './listBox.tsx';

interface ApiSelectProps {
  label?: string;
  hint?: string | false;
  wrong?: string | false;
  /** An id, or '' for `none`. */
  value: string;
  set: (apiId: string) => void;
  /** The label of the option without an API; '' if an API is required. */
  none: string;
  /** The label is for screen readers only. */
  isBare?: boolean;
}

/** APIs that are offered at a time. */
const limit = 20;

/** The name of an API; its id if the root key may not read it. `isInTurn`: one of many. */
export function useApiName(apiId: string, isInTurn = false): string {
  const input = apiId && may('api', 'read_api', apiId) ? { apiId } : undefined;
  const { data } = useData<Api>('apis.getApi', input, 0, isInTurn);
  return data?.name ?? apiId;
}

export function ApiSelect({ label = 'API', hint, wrong, isBare, ...props }: ApiSelectProps) {
  const mayList = may('api', 'read_api', '*');
  const named = mayList ? [] : namedApis();
  const Control = named.length > 0 ? Named : Combobox;
  const isIdOnly = !mayList && named.length === 0;
  if (isBare) return isIdOnly ? null : <Control id="api" label={label} named={named} {...props} />;
  if (isIdOnly) return <IdField label={label} hint={hint} wrong={wrong} {...props} />;
  return (
    <Field label={label} hint={hint} wrong={wrong}>
      {(id) => <Control id={id} named={named} {...props} />}
    </Field>
  );
}

type ControlProps = ApiSelectProps & { id: string; named: readonly string[] };

/** The grants name single APIs. */
const Named = ({ id, label, value, set, none, named }: ControlProps) => (
  <select id={id} aria-label={label} value={value} onChange={(e) => set(e.currentTarget.value)}>
    {none && <option value="">{none}</option>}
    {named.map((apiId) => (
      <NamedOption key={apiId} apiId={apiId} />
    ))}
  </select>
);
const NamedOption = ({ apiId }: { apiId: string }) => <option value={apiId}>{useApiName(apiId, true)}</option>;

const isApiId = (text: string) => /^api_[1-9A-HJ-NP-Za-km-z]{16}$/.test(text);

/** If the list may not be read, the user enters an id. The choice is in the address, so other text is not one. */
function IdField({ label = '', hint, wrong, value, set }: ApiSelectProps) {
  const [text, setText] = useState(value);
  const type = (typed: string) => {
    setText(typed);
    const id = typed.trim();
    set(isApiId(id) ? id : '');
  };
  // A link, Back or Forward changes the id as well.
  const shown = value || isApiId(text.trim()) ? value : text;
  return <TextField label={label} hint={hint} wrong={wrong} value={shown} set={type} placeholder="api_…" />;
}

type Option = Pick<Api, 'id' | 'name'>;

function Combobox({ id, label, value, set, none }: ControlProps) {
  const [text, setText] = useState<string>();
  const [active, setActive] = useState<number>();
  const isOpen = text !== undefined;
  const wanted = text?.trim() ?? '';
  const search = useSettled(wanted);
  const field = useRef<HTMLInputElement>(null);
  const input = isOpen ? { limit, order: 'desc', ...(search && { search }) } : undefined;
  const { data, pagination, failure } = useData<Api[]>('apis.listApis', input);
  const [chosen, setChosen] = useState<Option>({ id: '', name: none });
  const stored = useApiName(value);
  const name = chosen.id === value ? chosen.name : stored;
  const options = [...(search || !none ? [] : [{ id: '', name: none }]), ...(data ?? [])];
  // The current choice, or the best match.
  const first = Math.max(0, search ? 0 : options.findIndex(({ id }) => id === value));
  const at = Math.min(active ?? first, options.length - 1);
  const type = (typed: string) => {
    setText(typed);
    setActive(undefined);
  };
  const open = () => isOpen || type('');
  const choose = (option: Option) => {
    setText(undefined);
    setChosen(option);
    set(option.id);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!isOpen) {
      // Typing replaces the name.
      if (!step) return event.key.length === 1 && field.current!.select();
      open();
    } else if (step) setActive((at + step + options.length) % Math.max(1, options.length));
    else if (event.key === 'Enter') {
      // Not an option of the former search.
      if (data && search === wanted && options[at]) choose(options[at]);
    } else if (event.key === 'Escape') setText(undefined);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="combobox">
      <input
        id={id}
        ref={field}
        type="text"
        role="combobox"
        aria-label={label}
        autocomplete="off"
        spellcheck={false}
        aria-expanded={isOpen}
        aria-autocomplete="list"
        aria-controls={`${id}-list`}
        aria-activedescendant={isOpen && at >= 0 ? `${id}-${at}` : undefined}
        value={text ?? name}
        placeholder={name}
        onClick={open}
        onInput={(e) => type(e.currentTarget.value)}
        onKeyDown={onKeyDown}
        onBlur={() => setText(undefined)}
      />
      <span aria-hidden="true">▾</span>
      {isOpen && (
        <div class="options">
          <ListBox
            id={id}
            label="APIs"
            options={options.map(({ id, name }) => ({ title: name, note: id }))}
            at={at}
            choose={(position) => choose(options[position]!)}
          />
          <p role="status">{stateOf(data, failure, pagination?.hasMore)}</p>
        </div>
      )}
    </div>
  );
}

function stateOf(found: readonly Api[] | undefined, failure: Failure | undefined, hasMore: boolean | undefined) {
  if (failure) return failure.message;
  if (!found) return 'Searching …';
  if (hasMore) return 'There are others: type a part of the name or id.';
  return found.length === 0 && 'No API matches.';
}
