// The first screen of an empty workspace: make an API and a key, verify it, and see the verification arrive.

import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { call, curlOf, type Failure, refresh, useData } from '../api.ts';
import { count } from '../format.ts';
import { Button, Head, Problem, SetRootKey, Snippet, TextField } from '../parts/basic.tsx';
import { Secret } from '../parts/secret.tsx';
import type { Key } from '../records.ts';
import { useUnsaved } from '../unsaved.ts';

interface Made {
  apiId: string;
  keyId: string;
  key: string;
}

/** The new key stays on the page even if the list of APIs is no longer empty. */
export function Welcome() {
  const [name, setName] = useState('payments');
  const [typed, setPrefix] = useState<string>();
  // The beginning of the name, until another one is typed.
  const prefix =
    typed ??
    name
      .toLowerCase()
      .replaceAll(/[^a-z0-9]/g, '')
      .slice(0, 3);
  const [made, setMade] = useState<Made>();
  const [isSaved, setSaved] = useState(false);
  const [failure, setFailure] = useState<Failure>();
  const [isBusy, setBusy] = useState(false);
  useUnsaved(isBusy);
  const { data } = useData<Key>('keys.getKey', made && { keyId: made.keyId }, 1000);
  const isVerified = data?.lastUsedAt !== undefined;
  const make = async (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    try {
      const { apiId } = await call<{ apiId: string }>('apis.createApi', { name: name.trim() });
      const created = await call<{ keyId: string; key: string }>('keys.createKey', {
        apiId,
        name: 'My first key',
        ...(prefix && { prefix }),
        credits: { remaining: 1000 },
        ratelimits: [{ name: 'requests', limit: 10, duration: 60_000, autoApply: true }],
      });
      setMade({ apiId, ...created });
      setFailure(undefined);
    } catch (cause) {
      setFailure(cause as Failure);
    }
    setBusy(false);
  };
  return (
    <>
      <Head title="Welcome to Tollgate" />
      <section class="card">
        <ol class="steps">
          <li class={made ? 'done' : ''}>
            <div>
              <h2>Make an API and a key</h2>
              <p class="quiet">An API contains keys. The key gets 1,000 credits and a limit of 10 requests a minute.</p>
              {!made && (
                <form class="bar" onSubmit={make}>
                  <TextField label="Name of the API" value={name} set={setName} maxLength={255} />
                  <TextField label="Prefix of its key" value={prefix} set={setPrefix} maxLength={16} pattern="\w*" />
                  <Button type="submit" tone="primary" disabled={name.trim().length < 1 || isBusy}>
                    Make both
                  </Button>
                </form>
              )}
              <Problem failure={failure} />
            </div>
          </li>
          <li class={isSaved ? 'done' : ''}>
            <div>
              <h2>Keep the key</h2>
              {made ? (
                <Secret text={made.key} label="Copy key" isSaved={isSaved} save={() => setSaved(true)} />
              ) : (
                <p class="quiet">Tollgate stores only its digest, so it is displayed only once.</p>
              )}
            </div>
          </li>
          <li class={isVerified ? 'done' : ''}>
            <div>
              <h2>Verify it</h2>
              <p class="quiet">
                As your gateway will do with every request. In a terminal, set your root key, then verify:
              </p>
              {made && <Verify made={made} credits={isVerified ? data.credits?.remaining : undefined} />}
            </div>
          </li>
        </ol>
      </section>
    </>
  );
}

/** `credits` are left after the first verification. */
function Verify({ made: { keyId, key }, credits }: { made: Made; credits: number | undefined }) {
  return (
    <>
      <SetRootKey />
      <Snippet text={curlOf('keys.verifyKey', { key })} label="Copy as curl" />
      <p role="status">
        {credits === undefined ? (
          'Waiting for the first verification …'
        ) : (
          <>
            The first verification has arrived: {count(credits)} credits are left.{' '}
            <Link href={`/keys/${keyId}`} onClick={() => refresh()}>
              See the key
            </Link>
          </>
        )}
      </p>
    </>
  );
}
