// Dialogs, and operations that have to be confirmed.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { call, type Failure, refresh } from '../api.ts';
import { leave, useFilled, useUnsaved } from '../unsaved.ts';
import { visible } from '../visibleText.ts';
import { AsCurl, Button, Problem, TextField, WrongFields } from './basic.tsx';

interface DialogProps {
  title: string;
  /** Without it, only controls of the dialog close it. */
  close?: (() => void) | undefined;
  children: ComponentChildren;
}

/** A dialog of the browser: it keeps the focus, and Escape closes it. */
export function Dialog({ title, close, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current!;
    const before = document.activeElement;
    dialog.showModal();
    dialog.querySelector<HTMLElement>('form input, form select, form textarea')?.focus();
    return () => {
      dialog.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      aria-label={title}
      // Escape does by keyboard what a click outside the dialog does.
      onClick={(event) => event.target === ref.current && close?.()}
      onKeyDown={(event) => event.key === 'Escape' && !close && event.preventDefault()}
      onCancel={(event) => {
        // Even if `close` asks first.
        event.preventDefault();
        close?.();
      }}
      // A browser closes a dialog even if that was prevented, for example when Escape or Back is pressed again.
      onClose={() => ref.current?.isConnected && ref.current.showModal()}
    >
      <div class="dialog">
        <header class="card-head">
          <h2>{title}</h2>
          {close && (
            <Button tone="plain" aria-label="Close" onClick={close}>
              ✕
            </Button>
          )}
        </header>
        {children}
      </div>
    </dialog>
  );
}

interface ActProps<T> {
  title: string;
  /** Describes the effect, and whether it can be undone. */
  children?: ComponentChildren;
  operation: string;
  input: object;
  /** The button. */
  act: string;
  danger?: boolean;
  /** The text that the user must type first. */
  confirm?: string | undefined;
  /** Whether the form is complete. */
  ready?: boolean;
  /** The form edits stored values: Save needs a change. */
  isEdit?: boolean;
  /** The stored value that the request replaces as a whole: it must be as it was when the dialog opened. */
  edited?: unknown;
  /** Whether a field has a text that the request leaves out, because it is not complete. */
  isPartial?: boolean;
  /** Called when it is done. */
  close: () => void;
  /** Called in place of `close` when the dialog is left without acting. */
  cancel?: () => void;
  done?: (result: T) => void;
  /** Called in place of the operation. */
  send?: () => Promise<T>;
  /** An operation whose lists display the change already. */
  displayed?: string;
  /** The result has a secret, which `done` displays: until it has arrived, the dialog cannot be left. */
  makesSecret?: true;
}

/** Calls an operation after a confirmation. The request is displayed. */
export function Act<T>(props: ActProps<T>) {
  const [typed, setTyped] = useState('');
  const [failure, setFailure] = useState<Failure>();
  const [isBusy, setBusy] = useState(false);
  const { operation, input, confirm, close, cancel = close, done, makesSecret } = props;
  const isLeft = useRef(false);
  useEffect(
    () => () => {
      isLeft.current = true;
    },
    [],
  );
  // A name may contain characters that are displayed as marks; typing the marks confirms it.
  const isConfirmed = confirm === undefined || (typed !== '' && visible(typed) === visible(confirm));
  const isAwaited = isBusy && makesSecret === true;
  const request = JSON.stringify(input);
  const [first] = useState(request);
  const isChanged = request !== first;
  const edited = JSON.stringify(props.edited);
  const [firstEdited] = useState(edited);
  const isOld = edited !== firstEdited && !isBusy;
  const mayRun = !isOld && isConfirmed && (props.ready ?? true) && (isChanged || !props.isEdit) && !isBusy;
  useUnsaved(isAwaited);
  useFilled((isChanged || props.isPartial === true) && !isBusy);
  const run = async (event: Event) => {
    event.preventDefault();
    if (!mayRun) return;
    setBusy(true);
    try {
      const result = await (props.send?.() ?? call<T>(operation, input));
      // Another dialog of the screen may be open by now.
      if (!isLeft.current) close();
      done?.(result);
      // When the screen was drawn again: one that `done` has left asks for nothing.
      setTimeout(() => refresh(props.displayed));
    } catch (cause) {
      setFailure(cause as Failure);
      setBusy(false);
    }
  };
  return (
    <Dialog title={props.title} close={isAwaited ? undefined : () => leave(cancel)}>
      <form onSubmit={run}>
        {props.children}
        {confirm !== undefined && <TextField label={`Type ${confirm} to confirm`} value={typed} set={setTyped} />}
        <Problem failure={failure} />
        {isOld && (
          <p class="problem" role="alert">
            It was changed meanwhile. Close this dialog, and begin again.
          </p>
        )}
        <AsCurl operation={operation} input={input} />
        <footer class="dialog-foot">
          <WrongFields />
          <Button onClick={cancel} disabled={isAwaited}>
            Cancel
          </Button>
          <Button type="submit" tone={props.danger ? 'danger' : 'primary'} disabled={!mayRun}>
            {props.act}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
