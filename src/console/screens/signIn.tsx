import { useState } from 'preact/hooks';
import { call, type Failure } from '../api.ts';
import { Button, Field, Problem } from '../parts/basic.tsx';
import { addSignIn, endedBecause } from '../session.ts';

interface Whoami {
  workspaceId: string;
  workspaceName: string;
  permissions: string[];
}

export function SignInScreen({ cancel }: { cancel?: (() => void) | undefined }) {
  const [rootKey, setRootKey] = useState('');
  const [failure, setFailure] = useState<Failure>();
  const signIn = async (event: Event) => {
    event.preventDefault();
    try {
      const key = rootKey.trim();
      const { workspaceId, workspaceName, permissions } = await call<Whoami>('rootKeys.whoami', {}, key);
      addSignIn({ rootKey: key, workspaceId, name: workspaceName || workspaceId, grants: permissions });
    } catch (cause) {
      setFailure(cause as Failure);
    }
  };
  return (
    <main class="sign-in">
      <form class="card" onSubmit={signIn}>
        <h1>Tollgate</h1>
        {endedBecause() && !cancel && (
          <p class="notice" role="status">
            You were signed out: {endedBecause()} An administrator of Tollgate can create another one.
          </p>
        )}
        <Field
          label="Root key"
          hint="The first start printed one. The open tabs of this page share it until you sign out or close them. It is sent to this server only."
        >
          {(id) => (
            <input
              id={id}
              type="password"
              autocomplete="off"
              placeholder="root_…"
              value={rootKey}
              autofocus
              onInput={(e) => setRootKey(e.currentTarget.value)}
            />
          )}
        </Field>
        <Problem failure={failure} />
        <div class="actions">
          <Button type="submit" tone="primary" disabled={rootKey.trim() === ''}>
            Sign in
          </Button>
          {cancel && <Button onClick={cancel}>Cancel</Button>}
        </div>
        <details>
          <summary>Lost the root key?</summary>
          <p class="hint">
            In the folder of Tollgate: <code>npx tollgate root-key create --permission '*'</code> prints a new one.
          </p>
        </details>
      </form>
    </main>
  );
}
