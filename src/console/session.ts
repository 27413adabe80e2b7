// Sign-ins. A root key belongs to one workspace; a session of the browser may have several. They are in sessionStorage
// only: a closed tab forgets them, and nothing is written to the disk by this page. A new tab asks the open ones
// (tabs.ts).

import { whenSaved } from './unsaved.ts';

export interface SignIn {
  rootKey: string;
  workspaceId: string;
  /** The name of the workspace, or its id. */
  name: string;
  grants: readonly string[];
  /** Time of the sign-in. */
  at: number;
}

const stored = 'tollgate.signIns';
/**
 * In localStorage: when the browser signed out of each workspace. It reaches all tabs, including tabs that are loaded
 * again later. Workspace ids are not secret.
 */
const signedOut = 'tollgate.signedOut';
const signedOutMax = 50;

/** Whether the tab has neither signed in nor out. */
export const isNewTab = sessionStorage.getItem(stored) === null;
let signIns: SignIn[] = isNewTab ? [] : (parsed(sessionStorage.getItem(stored)) as SignIn[]).filter(isValid);
let current: SignIn | undefined = signIns[0];
const listeners = new Set<() => void>();

function parsed(text: string | null): unknown {
  try {
    return JSON.parse(text ?? '[]');
  } catch {
    return [];
  }
}

function signOuts(): Record<string, number> {
  return parsed(localStorage.getItem(signedOut) ?? '{}') as Record<string, number>;
}

/** Whether the browser has not signed out of the workspace since. */
function isValid({ workspaceId, at = 0 }: SignIn): boolean {
  return at > (signOuts()[workspaceId] ?? -1);
}

function changed() {
  // The current one comes first, so that a reload stays in its workspace.
  const others = signIns.filter((signIn) => signIn !== current);
  sessionStorage.setItem(stored, JSON.stringify(current ? [current, ...others] : others));
  for (const listener of listeners) listener();
}

export const currentSignIn = (): SignIn | undefined => current;
export const allSignIns = (): readonly SignIn[] => signIns;

export function addSignIn(signIn: Omit<SignIn, 'at'>) {
  const { workspaceId } = signIn;
  // It is after the sign-out even if the clock was set back.
  const added = { ...signIn, at: Math.max(Date.now(), (signOuts()[workspaceId] ?? 0) + 1) };
  signIns = [...signIns.filter((one) => one.workspaceId !== workspaceId), added];
  current = added;
  changed();
}

/** Takes the sign-ins of another tab, if this one has none. */
export function takeSignIns(of: readonly SignIn[]) {
  if (current) return;
  signIns = of.filter(isValid);
  current = signIns[0];
  if (current) changed();
}

export function switchTo(workspaceId: string) {
  current = signIns.find((signIn) => signIn.workspaceId === workspaceId) ?? current;
  changed();
}

/** Why the last sign-in of this tab ended; undefined if the user ended it. */
let ended: string | undefined;
export const endedBecause = () => ended;

/** Forgets sign-ins; another one, if there is one, becomes the current. */
function keepOnly(isKept: (signIn: SignIn) => boolean, reason?: string) {
  ended = reason;
  signIns = signIns.filter(isKept);
  if (current && !signIns.includes(current)) current = signIns[0];
  changed();
}

/** Forgets the current sign-in of this tab. */
export function endSignIn(reason?: string) {
  keepOnly((signIn) => signIn !== current, reason);
}

/** Signs out of the current workspace in all tabs, whichever root key they have. */
export function signOut() {
  if (!current) return;
  const { workspaceId, at } = current;
  const { [workspaceId]: _, ...others } = signOuts();
  const kept = Object.entries(others).slice(1 - signedOutMax);
  const all = Object.fromEntries([...kept, [workspaceId, Math.max(Date.now(), at)]]);
  localStorage.setItem(signedOut, JSON.stringify(all));
  endSignIn();
}

/** After another tab signed out. */
function drop() {
  if (signIns.every(isValid)) return;
  const end = () => keepOnly(isValid);
  if (current && !isValid(current)) whenSaved(end, 'You signed out in another tab.');
  else end();
}
addEventListener('storage', ({ key }) => key === signedOut && drop());
// A page that the browser restores from its cache missed the events.
addEventListener('pageshow', drop);

export function onSignIn(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The ids of the APIs that grants of the root key name, for this action or for any. */
export function namedApis(action?: string): string[] {
  const named = (current?.grants ?? [])
    .map((grant) => grant.split('.'))
    .filter(([resource, id, of]) => resource === 'api' && id !== '*' && (action ?? of) === of);
  return [...new Set(named.map(([, id = '']) => id))];
}

/** Whether the keys of an API may be listed, or those of all, `*`. */
const mayList = (apiId: string) => may('api', 'read_key', apiId) && may('api', 'read_api', apiId);

/**
 * The API of a list of keys: the chosen one, or the first whose keys may be listed if the root key may not list all.
 */
export const apiOfKeys = (chosen: string): string => chosen || (mayList('*') ? '' : (namedApis().find(mayList) ?? ''));

/** The name of the option without an API in a list of keys. */
export const noneOfKeys = () => (mayList('*') ? 'All APIs' : '');

/** Whether the root key has a grant for at least one id of the resource, or for this one. */
export function may(resource: string, action: string, id?: string): boolean {
  const grants = current?.grants ?? [];
  return grants.some((grant) => {
    if (grant === '*') return true;
    const [ofResource, ofId, ofAction] = grant.split('.');
    return ofResource === resource && ofAction === action && (id === undefined || ofId === '*' || ofId === id);
  });
}
