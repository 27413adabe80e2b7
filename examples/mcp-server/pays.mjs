// Makes tools of an MCP server paid: all of it that has to do with money. Copy it into your own server.

import { setTimeout as delay } from 'node:timers/promises';

const { TOLLGATE_URL, TOLLGATE_ROOT_KEY } = process.env;
if (!TOLLGATE_URL || !TOLLGATE_ROOT_KEY) {
  console.error('Set TOLLGATE_URL and TOLLGATE_ROOT_KEY: see examples/mcp-server/README.md.');
  process.exit(1);
}

/** Calls an operation of Tollgate. */
async function toll(operation, input) {
  const response = await fetch(`${TOLLGATE_URL}/v2/${operation}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${TOLLGATE_ROOT_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify(input),
    signal: AbortSignal.timeout(5000),
  });
  const { data, error } = await response.json();
  if (error) throw new Error(`${operation}: ${response.status} ${error.detail}`);
  return data;
}

/** Why a call was refused, in words by which a model can act. */
function refusalOf({ code, ratelimits, credits = 0 }, cost) {
  if (code === 'USAGE_EXCEEDED')
    return `This call costs ${cost} credits, and ${credits} are left. Ask the user to buy more, or ask for less.`;
  if (code !== 'RATE_LIMITED') return `The key of this server is refused: ${code}. Ask the user for another one.`;
  const { name, limit, reset } = ratelimits.find(({ exceeded }) => exceeded);
  const renews = `It renews at ${new Date(reset).toISOString()}`;
  return `The quota "${name}" of ${limit} is used up. ${renews}: tell the user, and do not call this tool before.`;
}

/**
 * Returns the function that registers paid tools of a server, for calls with this key. `cost` is in credits, or a
 * function of the input; `quota` is how many calls a key has in a period. With `holdMs` the cost is the most that a call
 * may cost: it is held, for that long without a settlement, and `run` calls `spend` for what it used.
 */
export const pays =
  (server, key) =>
  (name, config, { cost, quota, holdMs }, run) =>
    server.registerTool(name, config, async (input, { signal }) => {
      const most = typeof cost === 'function' ? cost(input) : cost;
      const verified = await toll('keys.verifyKey', {
        key,
        credits: { cost: most },
        ratelimits: [{ name: `calls of ${name}`, ...quota }],
        tags: [`tool=${name}`],
        ...(holdMs && { hold: { ttl: holdMs } }),
      }).catch(unavailable);
      if (!verified.valid) return { isError: true, content: [{ type: 'text', text: refusalOf(verified, most) }] };
      // A key with a concurrency limit has a hold for each call.
      let spent = holdMs ? 0 : most;
      const spend = (units) => (spent += units);
      try {
        return await run(input, { spend, signal });
      } finally {
        if (verified.hold) await settle(verified.hold.id, spent);
      }
    });

/** The model gets no details, which are for the operator. */
function unavailable(error) {
  console.error(error.message);
  throw new Error('Payments do not work at the moment. Try again in a minute.');
}

/** A settlement may be repeated. When Tollgate is away, `tollgate key hold-settle` does it by hand, for 24 hours. */
async function settle(holdId, spent, attempt = 1) {
  try {
    await toll('keys.settleHold', { holdId, credits: { cost: spent } });
  } catch (error) {
    if (attempt < 3) {
      await delay(500 * attempt);
      return settle(holdId, spent, attempt + 1);
    }
    console.error(`${holdId} is to be settled by ${spent} credits. ${error.message}`);
  }
}
