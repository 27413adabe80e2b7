// Sign-ins. A root key belongs to one workspace; a session of the browser may have several. They are in sessionStorage
// only: a closed tab forgets them, and nothing is written to the disk by this page.

interface SignIn {
  rootKey: string;
  workspaceId: string;
  /** Of the workspace, or its id. */
  name: string;
  grants: readonly string[];
}

const stored = 'tollgate.signIns';

let signIns: SignIn[] = read();
let current: SignIn | undefined = signIns[0];
const listeners = new Set<() => void>();

function read(): SignIn[] {
  try {
    return JSON.parse(sessionStorage.getItem(stored) ?? '[]');
  } catch {
    return [];
  }
}

function changed() {
  // The current one comes first, so that a reload stays in its workspace.
  const others = signIns.filter((signIn) => signIn !== current);
  sessionStorage.setItem(stored, JSON.stringify(current ? [current, ...others] : others));
  for (const listener of listeners) listener();
}

export const currentSignIn = (): SignIn | undefined => current;
export const allSignIns = (): readonly SignIn[] => signIns;

export function addSignIn(signIn: SignIn) {
  signIns = [...signIns.filter(({ workspaceId }) => workspaceId !== signIn.workspaceId), signIn];
  current = signIn;
  changed();
}

export function switchTo(workspaceId: string) {
  current = signIns.find((signIn) => signIn.workspaceId === workspaceId) ?? current;
  changed();
}

/** Forgets the current sign-in; another one, if there is one, becomes the current. */
export function signOut() {
  signIns = signIns.filter((signIn) => signIn !== current);
  current = signIns[0];
  changed();
}

export function onSignIn(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Whether the root key has a grant for at least one id of the resource, or for this one. */
export function may(resource: string, action: string, id?: string): boolean {
  const grants = current?.grants ?? [];
  return grants.some((grant) => {
    if (grant === '*') return true;
    const [ofResource, ofId, ofAction] = grant.split('.');
    return ofResource === resource && ofAction === action && (id === undefined || ofId === '*' || ofId === id);
  });
}
