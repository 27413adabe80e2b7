// The first screen of an empty workspace: make an API and a key, verify it, and see the verification arrive.

import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { call, curlOf, type Failure, refresh, useData } from '../api.ts';
import { Button, Head, Problem, Snippet, TextField } from '../parts/basic.tsx';
import type { Key } from '../records.ts';

interface Made {
  apiId: string;
  keyId: string;
  key: string;
}

/** What was made stays while the page does, also when the list of APIs is no longer empty. */
export function Welcome() {
  const [name, setName] = useState('payments');
  const [made, setMade] = useState<Made>();
  const [failure, setFailure] = useState<Failure>();
  const make = async (event: Event) => {
    event.preventDefault();
    try {
      const { apiId } = await call<{ apiId: string }>('apis.createApi', { name: name.trim() });
      const created = await call<{ keyId: string; key: string }>('keys.createKey', {
        apiId,
        name: 'My first key',
        credits: { remaining: 1000 },
        ratelimits: [{ name: 'requests', limit: 10, duration: 60_000, autoApply: true }],
      });
      setMade({ apiId, ...created });
      setFailure(undefined);
    } catch (cause) {
      setFailure(cause as Failure);
    }
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
                  <Button type="submit" tone="primary" disabled={name.trim().length < 1}>
                    Make both
                  </Button>
                </form>
              )}
              <Problem failure={failure} />
            </div>
          </li>
          <li>
            <div>
              <h2>Keep the key</h2>
              <p class="quiet">Tollgate stores only its digest, so this is the only time you see it.</p>
              {made && <Snippet text={made.key} label="Copy key" />}
            </div>
          </li>
          <Verified made={made} />
        </ol>
      </section>
    </>
  );
}

function Verified({ made }: { made: Made | undefined }) {
  const { data } = useData<Key>('keys.getKey', made && { keyId: made.keyId }, 1000);
  const isVerified = data?.lastUsedAt !== undefined;
  return (
    <li class={isVerified ? 'done' : ''}>
      <div>
        <h2>Verify it</h2>
        <p class="quiet">
          As your gateway will do with every request. In a terminal, with your root key as <code>ROOT_KEY</code>:
        </p>
        {made && <Snippet text={curlOf('keys.verifyKey', { key: made.key })} label="Copy as curl" />}
        {made && (
          <p role="status">
            {isVerified ? (
              <>
                The first verification has arrived: {data.credits?.remaining} credits are left.{' '}
                <Link href={`/keys/${made.keyId}`} onClick={refresh}>
                  See the key
                </Link>
              </>
            ) : (
              'Waiting for the first verification …'
            )}
          </p>
        )}
      </div>
    </li>
  );
}
