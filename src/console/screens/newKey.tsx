import { useState } from 'preact/hooks';
import { Link, useSearch } from 'wouter-preact';
import { call, curlOf, type Failure, refresh, useData } from '../api.ts';
import { ApiSelect } from '../parts/apiSelect.tsx';
import {
  AsCurl,
  Button,
  Card,
  Choice,
  Head,
  LacksScreen,
  Problem,
  SetRootKey,
  Snippet,
  TextField,
  WrongFields,
} from '../parts/basic.tsx';
import {
  AllowedIpsField,
  CreditsFields,
  CustomerField,
  creditsDraftOf,
  creditsOf,
  ExpiryField,
  type LimitDraft,
  LimitFields,
  limitsOf,
  MetaField,
  metaOf,
  namesOf,
  newDraft,
} from '../parts/keyForm.tsx';
import { NamesField } from '../parts/names.tsx';
import { PlanField, planOfKeyHint } from '../parts/plan.tsx';
import { Secret } from '../parts/secret.tsx';
import { isTimeInput, timeOfInput } from '../parts/times.tsx';
import type { Api } from '../records.ts';
import { may } from '../session.ts';
import { useFilled, useUnsaved } from '../unsaved.ts';

const templates = {
  blank: { credits: creditsDraftOf(undefined), limits: [] as LimitDraft[] },
  limited: {
    credits: creditsDraftOf(undefined),
    limits: [newDraft('requests', '100')],
  },
  trial: {
    credits: creditsDraftOf({ remaining: 1000 }),
    limits: [newDraft('requests', '10')],
  },
  monthly: {
    credits: creditsDraftOf({ remaining: 10_000, refill: { interval: 'monthly', amount: 10_000, refillDay: 1 } }),
    limits: [newDraft('requests', '100')],
  },
};
type Template = keyof typeof templates;

export function NewKey() {
  const query = new URLSearchParams(useSearch());
  const apis = useData<Api[]>('apis.listApis', may('api', 'read_api', '*') ? { limit: 2 } : undefined);
  const [made, setMade] = useState<{ keyId: string; key: string }>();
  if (!may('api', 'create_key')) return <LacksScreen title="New key" grant="api.*.create_key" />;
  if (made) return <Made {...made} again={() => setMade(undefined)} />;
  return (
    <>
      <Head title="New key" />
      <Form
        apis={apis.data ?? []}
        apiId={query.get('api') ?? ''}
        externalId={query.get('customer') ?? ''}
        made={setMade}
      />
    </>
  );
}

const noFields = {
  name: '',
  prefix: '',
  planId: '',
  expires: '',
  permissions: '',
  roles: '',
  allowedIps: '',
  meta: '',
};

/** The draft of a key, and the input of keys.createKey; undefined while it is not complete. */
function useDraft(first: { apiId: string; externalId: string }) {
  const [fields, setFields] = useState({ ...noFields, ...first });
  const [template, setTemplate] = useState<Template>('limited');
  const [credits, setCredits] = useState(templates.limited.credits);
  const [limits, setLimits] = useState<LimitDraft[]>(templates.limited.limits);
  const choose = (name: Template) => {
    setTemplate(name);
    setCredits(templates[name].credits);
    setLimits(templates[name].limits);
  };
  const ratelimits = limitsOf(limits);
  const balance = creditsOf(credits);
  const meta = metaOf(fields.meta);
  const isComplete = fields.apiId !== '' && ratelimits && balance !== undefined && meta && isTimeInput(fields.expires);
  const { permissions, roles, allowedIps } = fields;
  const lists = { permissions: namesOf(permissions), roles: namesOf(roles), allowedIps: namesOf(allowedIps) };
  const input = isComplete && {
    apiId: fields.apiId,
    ...(fields.name && { name: fields.name }),
    ...(fields.prefix && { prefix: fields.prefix }),
    ...(fields.externalId && { externalId: fields.externalId }),
    ...(fields.planId && { planId: fields.planId }),
    ...(fields.expires && { expires: timeOfInput(fields.expires) }),
    ...(balance && { credits: balance }),
    ...(ratelimits.length > 0 && { ratelimits }),
    ...(lists.permissions.length > 0 && { permissions: lists.permissions }),
    ...(lists.roles.length > 0 && { roles: lists.roles }),
    ...(lists.allowedIps.length > 0 && { allowedIps: lists.allowedIps }),
    ...(Object.keys(meta).length > 0 && { meta }),
  };
  const set = (name: keyof typeof fields) => (value: string) => setFields({ ...fields, [name]: value });
  // The API and the template are chosen again with one click.
  const isFilled =
    Object.entries({ ...noFields, externalId: first.externalId }).some(
      ([name, text]) => fields[name as keyof typeof fields] !== text,
    ) ||
    credits !== templates[template].credits ||
    limits !== templates[template].limits;
  return { fields, set, template, choose, credits, setCredits, limits, setLimits, input, isFilled };
}

function Form(props: {
  apis: readonly Api[];
  apiId: string;
  externalId: string;
  made: (key: { keyId: string; key: string }) => void;
}) {
  const draft = useDraft(props);
  const [failure, setFailure] = useState<Failure>();
  const [isBusy, setBusy] = useState(false);
  useUnsaved(isBusy);
  useFilled(draft.isFilled);
  const { fields, set } = draft;
  const only = props.apis.length === 1 ? props.apis[0]!.id : '';
  // With one API there is nothing to choose.
  if (fields.apiId === '' && only) set('apiId')(only);
  const create = async (event: Event) => {
    event.preventDefault();
    if (!draft.input || isBusy) return;
    setBusy(true);
    try {
      props.made(await call('keys.createKey', draft.input));
      refresh();
    } catch (cause) {
      setFailure(cause as Failure);
      setBusy(false);
    }
  };
  const templateNames = [
    ['limited', 'Rate limited'],
    ['trial', 'Trial with credits'],
    ['monthly', 'Monthly quota'],
    ['blank', 'No limits'],
  ] as const;
  return (
    <form class="form" onSubmit={create}>
      <Card title="Template">
        <Choice label="Template" value={draft.template} set={draft.choose} options={templateNames} />
      </Card>
      <Card title="Key">
        <div class="fields">
          <ApiSelect
            value={fields.apiId}
            set={set('apiId')}
            none="Choose …"
            wrong={fields.apiId === '' && 'Choose the API of the key.'}
          />
          <TextField label="Name" value={fields.name} set={set('name')} maxLength={255} placeholder="Ada's key" />
          <CustomerField value={fields.externalId} set={set('externalId')} />
          <PlanField value={fields.planId} set={set('planId')} hint={planOfKeyHint} />
          <TextField label="Prefix" value={fields.prefix} set={set('prefix')} maxLength={16} placeholder="pay" />
        </div>
        <ExpiryField value={fields.expires} set={set('expires')} />
        <AllowedIpsField value={fields.allowedIps} set={set('allowedIps')} />
      </Card>
      <Card>
        <CreditsFields draft={draft.credits} set={draft.setCredits} />
        <LimitFields drafts={draft.limits} set={draft.setLimits} />
      </Card>
      <Card title="Permissions and metadata">
        <div class="fields">
          <NamesField
            label="Permissions"
            of="permissions"
            value={fields.permissions}
            set={set('permissions')}
            placeholder="documents.read documents.write"
          />
          <NamesField label="Roles" of="roles" value={fields.roles} set={set('roles')} placeholder="editor" />
        </div>
        <MetaField value={fields.meta} set={set('meta')} />
      </Card>
      <Problem failure={failure} />
      <div class="actions">
        <Button type="submit" tone="primary" disabled={!draft.input || isBusy}>
          Create key
        </Button>
        <WrongFields />
        {draft.input && <AsCurl operation="keys.createKey" input={draft.input} />}
      </div>
    </form>
  );
}

const sdkSnippet = (key: string) =>
  [
    "import { Unkey } from '@unkey/api';",
    '',
    `const unkey = new Unkey({ rootKey: process.env.ROOT_KEY, serverURL: '${location.origin}' });`,
    `const { data } = await unkey.keys.verifyKey({ key: '${key}' });`,
  ].join('\n');

function Made({ keyId, key, again }: { keyId: string; key: string; again: () => void }) {
  const [language, setLanguage] = useState<'curl' | 'sdk'>('curl');
  const [isSaved, setSaved] = useState(false);
  return (
    <>
      <Head title="The key is made">
        {isSaved && (
          <>
            <Button onClick={again}>Another one</Button>
            <Link href={`/keys/${keyId}`} class="button primary">
              To the key
            </Link>
          </>
        )}
      </Head>
      <Card title="Key string">
        <Secret text={key} label="Copy key" isSaved={isSaved} save={() => setSaved(true)} />
      </Card>
      <Card
        title="Verify it"
        actions={
          <Choice
            label="Language"
            value={language}
            set={setLanguage}
            options={[
              ['curl', 'curl'],
              ['sdk', 'SDK'],
            ]}
          />
        }
      >
        <SetRootKey />
        <Snippet text={language === 'curl' ? curlOf('keys.verifyKey', { key }) : sdkSnippet(key)} />
        <p>
          <Link href={`/live?key=${keyId}`}>See its verifications as they happen</Link>
        </p>
      </Card>
    </>
  );
}
