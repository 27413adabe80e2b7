// Secrets that are displayed once: leaving asks until they are saved (unsaved.ts).

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { useEnding, useQuestion, useUnsaved } from '../unsaved.ts';
import { Button, Check, Snippet } from './basic.tsx';
import { Dialog } from './dialog.tsx';

interface SecretProps {
  text: string;
  /** The label of the button that copies it. */
  label: string;
  isSaved: boolean;
  save: () => void;
}

/** The string of a new key, which no request returns again, and the button that confirms that it is saved. */
export function Secret({ text, label, isSaved, save }: SecretProps) {
  const [isCopied, setCopied] = useState(false);
  const [isElsewhere, setElsewhere] = useState(false);
  const ending = useEnding();
  useUnsaved(!isSaved);
  return (
    <>
      <p class="notice">This is the only time that you see it: Tollgate stores its digest. Save it now.</p>
      <Snippet text={text} label={label} done={() => setCopied(true)} />
      {!isSaved && (
        <div class="actions saved">
          <Button tone="primary" disabled={!isCopied && !isElsewhere} onClick={save}>
            I have saved it
          </Button>
          {!isCopied && <Check label="I have saved it in another way" value={isElsewhere} set={setElsewhere} />}
        </div>
      )}
      {ending && (
        <p class="problem" role="alert">
          {ending} When you have saved this, the console signs out.
        </p>
      )}
    </>
  );
}

/** A dialog with a secret. It is closed by the button only. */
export const SecretDialog = (props: {
  title: string;
  text: string;
  label: string;
  close: () => void;
  children?: ComponentChildren;
}) => (
  <Dialog title={props.title}>
    <Secret text={props.text} label={props.label} isSaved={false} save={props.close} />
    {props.children}
  </Dialog>
);

/** Asks before a screen is left while a secret or a form is not saved. */
export function Question() {
  const question = useQuestion();
  if (!question) return null;
  const { isOfSecret } = question;
  return (
    <Dialog title={isOfSecret ? 'Leave without saving it?' : 'Leave the form?'} close={question.stay}>
      <p>
        {isOfSecret
          ? 'The string that is displayed is not saved. It is displayed only once: without it, the key is of no use.'
          : 'The changes in it are not saved.'}
      </p>
      <footer class="dialog-foot">
        <Button tone="danger" onClick={question.leave}>
          {isOfSecret ? 'Leave without it' : 'Leave'}
        </Button>
        <Button tone="primary" onClick={question.stay}>
          Stay
        </Button>
      </footer>
    </Dialog>
  );
}
