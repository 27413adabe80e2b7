import Type, { type Static } from 'typebox';
import type { TailFilter } from '../../decide/tail/stream.ts';
import { outcomes } from '../../domain/verification.ts';
import { ApiError } from '../../errors.ts';
import { type ManageContext, type Streaming, type StreamSink, streams } from '../../operation.ts';
import { invalid, lacks } from '../rules.ts';
import { ApiId, ExternalId, Fields, KeyId, may, NamespaceRef, OneOf, out } from '../schemas.ts';

/** A heartbeat is sent this often, and the root key is checked again. */
const beatMs = 4000;
/** Characters of events that wait until the root key was checked. More are left out. */
const heldMax = 65_536;
/** The longest timer of Node. A root key that lasts longer is checked by heartbeats until then. */
const timerMax = 2 ** 31 - 1;
/** Checks of the root key that may fail in a row because Redis does not reply. */
const failuresMax = 3;
/** Namespaces of which a caller may read analytics, if it may not read all: their names are looked up. */
const namespacesMax = 20;

const input = Fields({
  apiId: Type.Optional(ApiId),
  keyId: Type.Optional(KeyId),
  externalId: Type.Optional(ExternalId),
  outcome: Type.Optional(OneOf(outcomes, 'Outcome of the verifications.')),
  namespace: Type.Optional(NamespaceRef),
});
type Input = Static<typeof input>;

const time = out.int('Time of the decision in Unix milliseconds.');
const latencyMs = Type.Number({
  description: 'Milliseconds until Redis had decided it and the requests that were sent with it; 0 for one by a lease.',
});
const source = OneOf(['redis', 'lease'], 'Where it was decided.');
const sample = out.int(
  'One in this many decisions that pass the filters is sent. 1: all are, unless a connection is lost.',
);

const Verification = out.object('Data of the event `verification`.', {
  time,
  outcome: OneOf(outcomes, 'Outcome, as `code` of `keys.verifyKey`.'),
  keyId: may.text('Absent for NOT_FOUND, as the next four fields.'),
  name: may.text('Name of the key, if it has one.'),
  apiId: may.text('Id of the API.'),
  externalId: may.text('externalId of the identity, if the key has one.'),
  planId: may.text('Plan of the key, or else of its identity.'),
  tags: may.texts('Tags of the request.'),
  ratelimit: may.text('Name of the first limit that is exceeded.'),
  latencyMs,
  source,
  sample,
});

const LimitCheck = out.object('Data of the event `ratelimit`.', {
  time,
  namespace: out.text('As in the request: a name or an id.'),
  identifier: out.text('Identifier, as in the request.'),
  passed: out.flag('True if the request was admitted.'),
  limit: out.int('Limit that applied.'),
  remaining: out.int('Units that could be charged after the check.'),
  cost: out.int('Units of the request.'),
  latencyMs,
  source,
  sample,
});

const End = out.object('Data of the event `end`, the last one.', {
  reason: out.text('Error code of the root key, `grants_changed`, `shutting_down` or `store_unavailable`.'),
});

export const tail = streams({
  name: 'analytics.tail',
  summary: 'Receive decisions of all servers as they happen, as server-sent events.',
  description: `\`namespace\` filters limit checks, and is sent alone: all other filters are of verifications. A root key with grants for many APIs names one, and one with grants for more than ${namespacesMax} namespaces, but not for all, names \`namespace\`.`,
  input,
  output: Type.Union([Verification, LimitCheck, End]),
  needs: { api: ['read_analytics'] },
  // A caller with grants for some APIs gets only their decisions.
  scope: () => undefined,
  check(input) {
    const { namespace, ...others } = input;
    const [other] = Object.keys(others);
    if (namespace !== undefined && other !== undefined) {
      throw invalid(`body.${other}`, 'filters verifications, and namespace filters limit checks', 'Send one of them.');
    }
  },

  async handle(input, context) {
    const filter = await filterOf(input, context);
    const stream = new TailStream(input, context, filter);
    await stream.open();
    return stream;
  },
});

async function filterOf({ namespace, ...filters }: Input, context: ManageContext): Promise<TailFilter> {
  if (namespace !== undefined) return { checks: { namespaces: await namespacesOf(namespace, context) } };
  const { apiId, keyId, externalId, outcome } = filters;
  const ids = context.caller.grants.idsFor('api', 'read_analytics', apiId);
  const apiIds = ids === true ? ids : [...ids].sort();
  const verifications = { apiIds, keyId, externalId, outcome };
  if (Object.keys(filters).length > 0) return { verifications };
  return { verifications, checks: { namespaces: await namespacesOf(undefined, context) } };
}

/** The names and ids by which requests name these namespaces; true for all. */
async function namespacesOf(
  namespace: string | undefined,
  { store, caller: { workspaceId, grants } }: ManageContext,
): Promise<true | string[]> {
  const readable = grants.idsFor('ratelimit', 'read_analytics');
  if (namespace === undefined && readable === true) return true;
  if (namespace !== undefined && readable !== true && readable.length === 0) {
    throw lacks('ratelimit.*.read_analytics');
  }
  const wanted = namespace === undefined ? (readable as string[]) : [namespace];
  if (wanted.length > namespacesMax) {
    throw invalid('body.namespace', `is required: the root key has grants for more than ${namespacesMax} namespaces`);
  }
  const found = await Promise.all(wanted.map((name) => store.overrides.findNamespace(workspaceId, name)));
  // The decisions of a namespace that does not exist yet are received by its name.
  if (namespace !== undefined && !found[0]) return readable === true ? [namespace] : [];
  const known = found
    .filter((each) => each !== undefined)
    .filter(({ id }) => readable === true || readable.includes(id));
  return known.flatMap(({ id, name }) => [id, name]).sort();
}

/**
 * The stream of one listener. From a change of a root key of its workspace on, and when its own expires, it sends
 * nothing until its own was checked.
 */
class TailStream implements Streaming {
  readonly #input: Input;
  readonly #context: ManageContext;
  #filter: TailFilter;
  /** Events before `start`, and until the root key was checked. */
  #held = ': connected\n\n';
  #isHeld = true;
  #sink: StreamSink | undefined;
  #leave = () => {};
  #beat: NodeJS.Timeout | undefined;
  #expiry: NodeJS.Timeout | undefined;
  /** A check that runs, and whether another one has to follow. */
  #checking: Promise<void> | undefined;
  #isCheckDue = false;
  #failures = 0;
  #isStopped = false;
  /** Why it ends, unless the client has left. */
  #reason: string | undefined;

  constructor(input: Input, context: ManageContext, filter: TailFilter) {
    this.#input = input;
    this.#context = context;
    this.#filter = filter;
  }

  async open(filter = this.#filter) {
    const { store, caller } = this.#context;
    const leave = await store.tail.listen(caller.workspaceId, filter, {
      take: (events) => this.#write(events),
      rootKeysChanged: () => this.#holdAndCheck(),
    });
    const before = this.#leave;
    this.#leave = () => {
      before();
      leave();
    };
    if (this.#isStopped) this.#leave();
  }

  start(sink: StreamSink) {
    this.#sink = sink;
    if (this.#isStopped) return this.#end();
    this.#beat = setInterval(() => {
      sink.write(': heartbeat\n\n');
      void this.#check();
    }, beatMs).unref();
    // The root key may have been changed before this stream received changes.
    this.#holdAndCheck();
  }

  stop(reason?: string) {
    if (this.#isStopped) return;
    this.#isStopped = true;
    clearInterval(this.#beat);
    clearTimeout(this.#expiry);
    this.#leave();
    this.#reason = reason;
    this.#end();
  }

  /** Sends the reason, unless the client has left. Before `start` it waits for that. */
  #end() {
    if (this.#reason === undefined || !this.#sink) return;
    this.#sink.write(`event: end\ndata: ${JSON.stringify({ reason: this.#reason })}\n\n`);
    this.#sink.end();
  }

  #write(events: string) {
    if (!this.#isHeld) this.#sink!.write(events);
    else if (this.#held.length + events.length <= heldMax) this.#held += events;
  }

  #holdAndCheck() {
    this.#isHeld = true;
    void this.#check();
  }

  /** Ends the stream if the root key may no longer read its decisions. */
  async #check(): Promise<void> {
    this.#isCheckDue = true;
    this.#checking ??= this.#checkAll().finally(() => {
      this.#checking = undefined;
    });
    return this.#checking;
  }

  async #checkAll() {
    // The reply of Redis may be older than a change that this stream received meanwhile.
    while (this.#isCheckDue && !this.#isStopped) {
      this.#isCheckDue = false;
      const reason = await this.#reasonToEnd().catch((error: unknown) => {
        if (error instanceof ApiError && error.status < 500) return error.code;
        // The next heartbeat checks again.
        return ++this.#failures < failuresMax ? undefined : 'store_unavailable';
      });
      if (reason !== undefined) return this.stop(reason);
    }
    // A change may arrive before the stream starts, which checks again.
    if (this.#failures > 0 || this.#isStopped || !this.#sink) return;
    this.#isHeld = false;
    const events = this.#held;
    this.#held = '';
    if (events !== '') this.#sink.write(events);
  }

  async #reasonToEnd(): Promise<string | undefined> {
    const caller = await this.#context.reauthenticate();
    if (!caller.grants.holdsAny('api', 'read_analytics')) return 'grants_changed';
    const filter = await filterOf(this.#input, { ...this.#context, caller });
    // The client may have left meanwhile: a timer would keep the request in memory.
    if (this.#isStopped) return undefined;
    this.#failures = 0;
    clearTimeout(this.#expiry);
    if (caller.lastsMs <= timerMax) this.#expiry = setTimeout(() => this.#holdAndCheck(), caller.lastsMs).unref();
    if (JSON.stringify(filter) === JSON.stringify(this.#filter)) return undefined;
    const id = this.#createdId(filter);
    if (id === undefined) return 'grants_changed';
    // If there is no place for another listener, the next check tries again.
    const goOn = () => {
      this.#filter = filter;
    };
    await this.open({ checks: { namespaces: [id] } }).then(goOn, () => {});
    return undefined;
  }

  /** The id of the namespace, if it did not exist when its decisions were received by its name, and does now. */
  #createdId({ checks }: TailFilter): string | undefined {
    const { namespace } = this.#input;
    const [before, now] = [this.#filter.checks?.namespaces, checks?.namespaces];
    if (namespace === undefined || before === true || now === true) return undefined;
    if (before?.length !== 1 || before[0] !== namespace) return undefined;
    return now?.includes(namespace) ? now.find((name) => name !== namespace) : undefined;
  }
}
