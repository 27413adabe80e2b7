// Network namespaces of Linux, for the bench and for the tests. A connection between two of them is not a loopback
// connection, whose ports Linux reuses at once.
import { spawnSync } from 'node:child_process';

function ip(...words) {
  const { status, stderr, error } = spawnSync('ip', words, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`ip ${words.join(' ')}: ${error?.message ?? stderr.trim()}`);
}

const addressOf = (number) => [24, 16, 8, 0].map((bits) => (number >>> bits) & 255).join('.');

/**
 * A network of its own with a cable to the network `from`, by default that of this process. Its two addresses are in
 * 198.18.0.0/15, which is reserved for tests of networks (RFC 2544), and differ from those of other processes.
 */
export function addNetwork(name, from) {
  ip('netns', 'add', name);
  try {
    const subnet = 0xc6120000 + (process.pid % 0x8000) * 4;
    const [here, there] = [addressOf(subnet + 1), addressOf(subnet + 2)];
    const cable = `tg${process.pid}`;
    const inside = from ? ['-n', from] : [];
    ip(...inside, 'link', 'add', cable, 'type', 'veth', 'peer', 'name', 'tg', 'netns', name);
    ip(...inside, 'address', 'add', `${here}/30`, 'dev', cable);
    ip(...inside, 'link', 'set', cable, 'up');
    ip('-n', name, 'address', 'add', `${there}/30`, 'dev', 'tg');
    ip('-n', name, 'link', 'set', 'tg', 'up');
    return { address: there, remove: () => ip('netns', 'delete', name) };
  } catch (cause) {
    ip('netns', 'delete', name);
    throw cause;
  }
}

/** A network with nothing but a loopback interface. */
export function addEmptyNetwork(name) {
  ip('netns', 'add', name);
  ip('-n', name, 'link', 'set', 'lo', 'up');
  return { remove: () => ip('netns', 'delete', name) };
}

/** The reason why there can be no network namespaces here; undefined if there can. */
export function missingNetworks() {
  try {
    addEmptyNetwork(`tollgate-${process.pid}-try`).remove();
    return undefined;
  } catch (cause) {
    return cause.message;
  }
}

/** The words before a command that runs it in a network. */
export const within = (name) => ['ip', 'netns', 'exec', name];
