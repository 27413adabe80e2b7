// The frame of all screens: sign-in, navigation, and the screen of each path. Paths contain no secrets.

import { useEffect, useLayoutEffect, useReducer, useRef, useState } from 'preact/hooks';
import { type AroundNavHandler, Link, Route, Router, Switch, useLocation } from 'wouter-preact';
import { forgetAll, useStale } from './api.ts';
import { timeOfDay } from './format.ts';
import { Button, Empty, Head } from './parts/basic.tsx';
import { Done } from './parts/many.tsx';
import { Palette, type Screen, useShortcuts } from './parts/palette.tsx';
import { Question } from './parts/secret.tsx';
import { textOfPart } from './paths.ts';
import { onRedraw } from './redraw.ts';
import { Access } from './screens/access.tsx';
import { ApiScreen } from './screens/api.tsx';
import { Apis } from './screens/apis.tsx';
import { Attention } from './screens/attention.tsx';
import { Bill } from './screens/bill.tsx';
import { Customer } from './screens/customer.tsx';
import { Customers } from './screens/customers.tsx';
import { KeyScreen } from './screens/key.tsx';
import { Keys } from './screens/keys.tsx';
import { Live } from './screens/live.tsx';
import { Namespace } from './screens/namespace.tsx';
import { NewKey } from './screens/newKey.tsx';
import { Overview } from './screens/overview.tsx';
import { PlanScreen } from './screens/plan.tsx';
import { Plans } from './screens/plans.tsx';
import { RateLimits } from './screens/rateLimits.tsx';
import { SignInScreen } from './screens/signIn.tsx';
import { System } from './screens/system.tsx';
import { Why } from './screens/why.tsx';
import { allSignIns, currentSignIn, may, onSignIn, signOut, switchTo } from './session.ts';
import { currentTheme, setTheme, type Theme } from './theme.ts';
import { leave } from './unsaved.ts';
import { isLocal, localTime, setLocal } from './zone.ts';

const readsOfAccess = 'root_key.read_root_key rbac.read_role audit.read_audit';
const iconOfCustomers = 'M5.5 5a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0M3 14c0-6 10-6 10 0';

/**
 * The groups of screens. A screen has a path, a name, a component, an icon (the path of an SVG of 16 by 16), the letter
 * that opens it after `g`, and the grants of which it needs one.
 */
const screens = [
  [
    'Traffic',
    [
      ['/', 'Overview', Overview, 'M2 14V8h3v6M6.5 14V2h3v12M11 14V5h3v9', 'o', ''],
      ['/live', 'Live', Live, 'M1 8h3l2-5 4 10 2-5h3', 'l', 'api.read_analytics'],
      ['/attention', 'Attention', Attention, 'M8 2l6.5 12h-13zM8 6.5v3.5m0 1.5v.5', 't', 'api.read_key'],
    ],
  ],
  [
    'Keys and limits',
    [
      ['/apis', 'APIs', Apis, 'M2 5l6-3 6 3-6 3zM2 8l6 3 6-3M2 11l6 3 6-3', 'a', 'api.read_api'],
      ['/keys', 'Keys', Keys, 'M7.5 5.5a3 3 0 1 0 6 0a3 3 0 1 0-6 0M8.4 7.6L2.5 13.5m2-2l1.5 1.5', 'k', 'api.read_key'],
      ['/new-key', 'New key', NewKey, 'M8 3v10M3 8h10', 'n', 'api.create_key'],
      ['/why', 'Explain', () => <Why />, 'M5.5 6a2.5 2.5 0 1 1 2.5 2.5v2m0 2v.5', 'e', 'api.read_key'],
      ['/customers', 'Customers', Customers, iconOfCustomers, 'c', 'identity.read_identity'],
      ['/plans', 'Plans', Plans, 'M2 13h12M3.5 13V9.5M8 13V6.5M12.5 13v-10', 'p', 'plan.read_plan'],
      ['/bill', 'Bill', Bill, 'M4 1.5h8v13l-2-1.5-2 1.5-2-1.5-2 1.5zM6 5h4M6 8h4', 'b', 'api.read_analytics'],
      ['/rate-limits', 'Rate limits', RateLimits, 'M2 12a6 6 0 1 1 12 0M8 12l3-4', 'r', 'ratelimit.read_namespace'],
    ],
  ],
  [
    'Administration',
    [
      ['/access', 'Access', Access, 'M4 7h8v7H4zM5.5 7V5a2.5 2.5 0 0 1 5 0v2', 'x', readsOfAccess],
      ['/system', 'System', System, 'M2 3h12v4H2zM2 9h12v4H2zM4.5 5h1m-1 6h1', 's', 'system.read_status'],
    ],
  ],
] as const;

const mayOpen = (grants: string) =>
  grants === '' || grants.split(' ').some((grant) => may(...(grant.split('.') as [string, string])));

export function App() {
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const [isAdding, setAdding] = useState(false);
  const last = useRef(currentSignIn()?.workspaceId);
  // Runs before anything else can sign in: the response of another tab may arrive now.
  useLayoutEffect(
    () =>
      onSignIn(() => {
        const now = currentSignIn()?.workspaceId;
        // The filters in the address are those of the former workspace.
        if (last.current && now && now !== last.current) history.replaceState(null, '', location.pathname);
        last.current = now ?? last.current;
        forgetAll();
        setAdding(false);
        draw(undefined as never);
      }),
    [],
  );
  useEffect(() => onRedraw(() => draw(undefined as never)), []);
  const signIn = currentSignIn();
  if (!signIn || isAdding) return <SignInScreen cancel={signIn && (() => setAdding(false))} />;
  // Another workspace starts with screens of its own.
  return (
    <Router base="/console" key={signIn.workspaceId} aroundNav={aroundNav}>
      <Shell add={() => setAdding(true)} />
    </Router>
  );
}

/** A link to the screen that is displayed leaves nothing. */
const aroundNav: AroundNavHandler = (navigate, to, options) =>
  new URL(to, location.href).pathname === location.pathname
    ? navigate(to, options)
    : leave(() => navigate(to, options));

function Shell({ add }: { add: () => void }) {
  const [path] = useLocation();
  const main = useRef<HTMLElement>(null);
  const isFirst = useRef(true);
  useEffect(() => {
    // A new screen is read from its head by screen readers, and the keyboard starts there, unless the screen has moved
    // the focus.
    if (!isFirst.current && !main.current!.contains(document.activeElement)) main.current!.focus();
    isFirst.current = false;
    scrollTo(0, 0);
  }, [path]);
  const [isFinding, setFinding] = useState(false);
  const offered = screens
    .flatMap(([, ofGroup]) => ofGroup.filter((screen) => mayOpen(screen[5])))
    .map(([path, name, , , letter]): Screen => ({ path, name, letter }));
  useShortcuts(offered, () => setFinding(true));
  const close = () => setFinding(false);
  // A key string may be in its field.
  useEffect(close, [path]);
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Skip to the screen
      </a>
      <Side add={add} find={() => setFinding(true)} />
      <main id="main" ref={main} tabIndex={-1}>
        <Switch>
          {screens.flatMap(([, ofGroup]) =>
            ofGroup.map(([path, , component]) => <Route key={path} path={path} component={component} />),
          )}
          <Route path="/apis/:apiId">{({ apiId }) => <ApiScreen key={apiId} apiId={apiId} />}</Route>
          <Route path="/keys/:keyId">{({ keyId }) => <KeyScreen key={keyId} keyId={keyId} />}</Route>
          <Route path="/why/:keyId">{({ keyId }) => <Why key={keyId} keyId={keyId} />}</Route>
          <Route path="/customers/:externalId">
            {({ externalId }) => <Customer key={externalId} externalId={textOfPart(externalId)} />}
          </Route>
          <Route path="/plans/:planId">{({ planId }) => <PlanScreen key={planId} planId={textOfPart(planId)} />}</Route>
          <Route path="/rate-limits/:namespace">
            {({ namespace }) => <Namespace key={namespace} namespace={textOfPart(namespace)} />}
          </Route>
          <Route>
            <Head title="Not found" />
            <Empty title="There is no such screen">
              <Link href="/">Overview</Link>
            </Empty>
          </Route>
        </Switch>
        <Stale />
        <Done />
      </main>
      {isFinding && <Palette screens={offered} close={close} />}
      <Question />
    </div>
  );
}

/** Displayed when the screen is not up to date, for example because the server or Redis is not reachable. */
function Stale() {
  const stale = useStale();
  if (!stale) return null;
  return (
    <p class="problem stale" role="alert">
      {stale.failure.message} The data of this screen is of {timeOfDay(stale.loadedAt)} UTC
      {localTime(stale.loadedAt)}.
    </p>
  );
}

function Side({ add, find }: { add: () => void; find: () => void }) {
  const [path] = useLocation();
  // On a narrow screen, all but the first row is a menu.
  const [isOpen, setOpen] = useState(false);
  const toggle = useRef<HTMLDivElement>(null);
  useEffect(() => setOpen(false), [path]);
  const closeByKey = ({ key }: KeyboardEvent) => {
    if (key !== 'Escape' || !isOpen) return;
    setOpen(false);
    toggle.current!.querySelector<HTMLElement>('[aria-expanded]')!.focus();
  };
  const signIns = allSignIns();
  const choose = (select: HTMLSelectElement) => {
    const { value } = select;
    // Waits for the answer to the question, if there is one.
    select.value = currentSignIn()!.workspaceId;
    leave(() => (value === '' ? add() : switchTo(value)));
  };
  return (
    <aside class={`side ${isOpen ? 'open' : ''}`} onKeyDown={closeByKey}>
      <div class="side-top" ref={toggle}>
        <Link href="/" class="brand">
          <svg width="20" height="20" viewBox="0 0 16 16" aria-hidden="true">
            <rect width="16" height="16" rx="4" fill="#5b50e6" />
            <path d="M4 5h8M8 5v7" stroke="white" stroke-width="2" fill="none" />
          </svg>
          Tollgate
        </Link>
        <Button class="find" onClick={find} aria-keyshortcuts="Control+K Meta+K" title="Ctrl K">
          Find
        </Button>
        <Button aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          Menu
        </Button>
      </div>
      <select aria-label="Workspace" value={currentSignIn()?.workspaceId} onChange={(e) => choose(e.currentTarget)}>
        {signIns.map(({ workspaceId, name }) => (
          <option key={workspaceId} value={workspaceId}>
            {name}
          </option>
        ))}
        <option value="">Add a workspace …</option>
      </select>
      <Screens path={path} chosen={() => setOpen(false)} />
      <div class="side-foot">
        <ThemeSelect />
        <select
          aria-label="Times"
          value={isLocal() ? 'local' : 'utc'}
          onChange={(e) => setLocal(e.currentTarget.value === 'local')}
        >
          <option value="utc">Times in UTC</option>
          <option value="local">UTC and local time</option>
        </select>
        <a href="/docs" target="_blank" rel="noreferrer">
          API reference
        </a>
        <Button onClick={() => leave(signOut)}>Sign out</Button>
      </div>
    </aside>
  );
}

/** `chosen` is called even if the path stays. */
function Screens({ path, chosen }: { path: string; chosen: () => void }) {
  const isAt = (screen: string) => (screen === '/' ? path === '/' : path === screen || path.startsWith(`${screen}/`));
  return (
    <nav aria-label="Screens">
      {screens.map(([group, ofGroup]) => (
        <ul key={group} aria-label={group}>
          {ofGroup.map(
            ([screen, name, , icon, , grants]) =>
              mayOpen(grants) && (
                <li key={screen}>
                  <Link href={screen} aria-current={isAt(screen) ? 'page' : undefined} onClick={chosen}>
                    <svg width="16" height="16" aria-hidden="true">
                      <path d={icon} />
                    </svg>
                    {name}
                  </Link>
                </li>
              ),
          )}
        </ul>
      ))}
    </nav>
  );
}

function ThemeSelect() {
  const [theme, set] = useState(currentTheme());
  const choose = (value: Theme) => {
    setTheme(value);
    set(value);
  };
  return (
    <select aria-label="Theme" value={theme} onChange={(e) => choose(e.currentTarget.value as Theme)}>
      <option value="system">System theme</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  );
}
