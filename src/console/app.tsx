// The frame of all screens: sign-in, navigation, and the screen of each path. A path never has a secret.

import { useEffect, useLayoutEffect, useReducer, useRef, useState } from 'preact/hooks';
import { type AroundNavHandler, Link, Route, Router, Switch, useLocation } from 'wouter-preact';
import { forgetAll, useStale } from './api.ts';
import { timeOfDay } from './format.ts';
import { Button, Empty, Head } from './parts/basic.tsx';
import { Question } from './parts/secret.tsx';
import { textOfPart } from './paths.ts';
import { Access } from './screens/access.tsx';
import { Attention } from './screens/attention.tsx';
import { Customer } from './screens/customer.tsx';
import { Customers } from './screens/customers.tsx';
import { KeyScreen } from './screens/key.tsx';
import { Keys } from './screens/keys.tsx';
import { Live } from './screens/live.tsx';
import { Namespace } from './screens/namespace.tsx';
import { NewKey } from './screens/newKey.tsx';
import { Overview } from './screens/overview.tsx';
import { RateLimits } from './screens/rateLimits.tsx';
import { SignInScreen } from './screens/signIn.tsx';
import { System } from './screens/system.tsx';
import { Why } from './screens/why.tsx';
import { allSignIns, currentSignIn, onSignIn, signOut, switchTo } from './session.ts';
import { currentTheme, setTheme, type Theme } from './theme.ts';
import { leave } from './unsaved.ts';

const screens = [
  ['/', 'Overview'],
  ['/keys', 'Keys'],
  ['/new-key', 'New key'],
  ['/why', 'Why?'],
  ['/live', 'Live'],
  ['/customers', 'Customers'],
  ['/rate-limits', 'Rate limits'],
  ['/attention', 'Attention'],
  ['/access', 'Access'],
  ['/system', 'System'],
] as const;

export function App() {
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const [isAdding, setAdding] = useState(false);
  const last = useRef(currentSignIn()?.workspaceId);
  // Before anything else can sign in: the response of another tab may arrive now.
  useLayoutEffect(
    () =>
      onSignIn(() => {
        const now = currentSignIn()?.workspaceId;
        // What the address filters by is of the workspace that is left.
        if (last.current && now && now !== last.current) history.replaceState(null, '', location.pathname);
        last.current = now ?? last.current;
        forgetAll();
        setAdding(false);
        draw(undefined as never);
      }),
    [],
  );
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
  useSlash();
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Skip to the screen
      </a>
      <Side add={add} />
      <main id="main" ref={main} tabIndex={-1}>
        <Switch>
          <Route path="/" component={Overview} />
          <Route path="/keys" component={Keys} />
          <Route path="/keys/:keyId">{({ keyId }) => <KeyScreen key={keyId} keyId={keyId} />}</Route>
          <Route path="/new-key" component={NewKey} />
          <Route path="/why">
            <Why />
          </Route>
          <Route path="/why/:keyId">{({ keyId }) => <Why key={keyId} keyId={keyId} />}</Route>
          <Route path="/live" component={Live} />
          <Route path="/customers" component={Customers} />
          <Route path="/customers/:externalId">
            {({ externalId }) => <Customer key={externalId} externalId={textOfPart(externalId)} />}
          </Route>
          <Route path="/rate-limits" component={RateLimits} />
          <Route path="/rate-limits/:namespace">
            {({ namespace }) => <Namespace key={namespace} namespace={textOfPart(namespace)} />}
          </Route>
          <Route path="/attention" component={Attention} />
          <Route path="/access" component={Access} />
          <Route path="/system" component={System} />
          <Route>
            <Head title="Not found" />
            <Empty title="There is no such screen">
              <Link href="/">Overview</Link>
            </Empty>
          </Route>
        </Switch>
        <Stale />
      </main>
      <Question />
    </div>
  );
}

/** Says that the screen is not up to date, as when the server or Redis is away. */
function Stale() {
  const stale = useStale();
  if (!stale) return null;
  return (
    <p class="problem stale" role="alert">
      {stale.failure.message} The data of this screen is of {timeOfDay(stale.loadedAt)} UTC.
    </p>
  );
}

function Side({ add }: { add: () => void }) {
  const [path] = useLocation();
  const isAt = (screen: string) => (screen === '/' ? path === '/' : path === screen || path.startsWith(`${screen}/`));
  // On a narrow screen, all but the first row is a menu.
  const [isOpen, setOpen] = useState(false);
  const toggle = useRef<HTMLDivElement>(null);
  useEffect(() => setOpen(false), [path]);
  const closeByKey = ({ key }: KeyboardEvent) => {
    if (key !== 'Escape' || !isOpen) return;
    setOpen(false);
    toggle.current!.querySelector('button')!.focus();
  };
  const signIns = allSignIns();
  const choose = (select: HTMLSelectElement) => {
    const { value } = select;
    // Until the question is answered, if there is one.
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
      <nav aria-label="Screens">
        <ul>
          {screens.map(([screen, name]) => (
            <li key={screen}>
              <Link
                href={screen}
                aria-current={isAt(screen) ? 'page' : undefined}
                // Also where the path stays.
                onClick={() => setOpen(false)}
              >
                {name}
              </Link>
            </li>
          ))}
        </ul>
      </nav>
      <div class="side-foot">
        <ThemeSelect />
        <a href="/docs" target="_blank" rel="noreferrer">
          API reference
        </a>
        <Button onClick={() => leave(signOut)}>Sign out</Button>
      </div>
    </aside>
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
      <option value="system">Theme of the system</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  );
}

/** `/` goes to the search of the screen, or to that of the keys. */
function useSlash() {
  const [, go] = useLocation();
  useEffect(() => {
    const listener = (event: KeyboardEvent) => {
      const isTyping = event.target instanceof Element && event.target.closest('input, textarea, select, dialog');
      if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
      event.preventDefault();
      const search = document.querySelector<HTMLInputElement>('input[type=search]');
      if (search) search.focus();
      else go('/keys?search');
    };
    addEventListener('keydown', listener);
    return () => removeEventListener('keydown', listener);
  }, []);
}
