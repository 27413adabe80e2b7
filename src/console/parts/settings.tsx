// Dialogs of settings of the workspace.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call, Failure } from '../api.ts';
import type { Settings } from '../records.ts';
import { Problem, Waiting } from './basic.tsx';
import { Dialog } from './dialog.tsx';

/** Reads the settings before it has a form: another administrator may have changed what is displayed. */
export function SettingsDialog(props: {
  title: string;
  close: () => void;
  form: (settings: Settings) => ComponentChildren;
}) {
  const { title, close, form } = props;
  const [read, setRead] = useState<Settings | Failure>();
  const load = () => call<Settings>('workspace.getSettings', {}).then(setRead, setRead);
  useEffect(() => void load(), []);
  if (read && !(read instanceof Failure)) return <>{form(read)}</>;
  return (
    <Dialog title={title} close={close}>
      {read ? <Problem failure={read} retry={load} /> : <Waiting />}
    </Dialog>
  );
}
