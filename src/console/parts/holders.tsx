// The setting `me` of the workspace: whether customers may read their keys with GET /v2/me, and from which pages.
import { useState } from 'preact/hooks';
import { useData } from '../api.ts';
import type { Settings } from '../records.ts';
import { may } from '../session.ts';
import { Badge, Button, Card, Check, TextField } from './basic.tsx';
import { Act } from './dialog.tsx';
import { namesOf } from './keyForm.tsx';
import { SettingsDialog } from './settings.tsx';

const title = 'What customers see with their key';

export function Holders() {
  const mayRead = may('workspace', 'read_settings');
  const { data } = useData<Settings>('workspace.getSettings', mayRead ? {} : undefined);
  const [isEditing, setEditing] = useState(false);
  if (!data) return null;
  const { me } = data;
  const close = () => setEditing(false);
  return (
    <Card
      title={title}
      actions={may('workspace', 'update_settings') && <Button onClick={() => setEditing(true)}>Change …</Button>}
    >
      <p>
        <Badge tone={me ? 'good' : ''}>{me ? 'On' : 'Off'}</Badge> A customer reads the limits, credits and usage of a
        key with the key itself, by <code>GET /v2/me</code>.
      </p>
      {me?.origins && me.origins.length > 0 && <p>Pages that may read it: {me.origins.join(', ')}</p>}
      {me?.meta && me.meta.length > 0 && <p>Metadata that it has: {me.meta.join(', ')}</p>}
      {isEditing && (
        <SettingsDialog title={title} close={close} form={(now) => <EditHolders me={now.me} close={close} />} />
      )}
    </Card>
  );
}

function EditHolders({ me, close }: { me: Settings['me']; close: () => void }) {
  const [isOn, setOn] = useState(me !== undefined);
  const [origins, setOrigins] = useState((me?.origins ?? []).join(' '));
  return (
    <Act
      title={title}
      operation="workspace.updateSettings"
      input={{ me: isOn ? { ...me, origins: namesOf(origins) } : null }}
      act="Save"
      isEdit
      close={close}
    >
      <Check label="Customers may read their keys" value={isOn} set={setOn} />
      {isOn && (
        <TextField
          label="Origins of pages that may read the answer"
          value={origins}
          set={setOrigins}
          hint="With spaces between them. Empty: no page, only programs such as your backend."
          placeholder="https://app.example.com"
        />
      )}
    </Act>
  );
}
