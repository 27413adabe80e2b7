// How a command fails: its exit code, and its error as JSON. docs/commands.md lists the codes.

/** The arguments are wrong, or the server refused the input. */
export const usageExitCode = 2;
const notFoundExitCode = 3;
/** The server refused it for another reason, or cannot be reached. */
const refusedExitCode = 4;
/** As of a program that SIGPIPE ended: standard output was closed. */
const closedExitCode = 141;

interface Failure extends Error {
  /** Of an operation: that of the error response, and its status. */
  code?: string;
  status?: number;
  exitCode?: number;
  /** The server did not get the request. */
  notSent?: boolean;
}

/** Whether an operation that failed may have changed something: no response arrived, or Redis did not reply in time. */
export const mayHaveChanged = ({ status = 500, code = '', notSent = false }: Failure): boolean =>
  status >= 500 && !notSent && !['store_full', 'shutting_down'].includes(code);

export const isClosed = (error: Failure): boolean => error.code === 'EPIPE';
/** Of an error that wraps that of an operation, the other one. */
const ofOperation = (error: Failure): Failure =>
  error.status === undefined && error.cause instanceof Error ? ofOperation(error.cause) : error;

export function failureCodeOf(error: Failure): number {
  if (isClosed(error)) return closedExitCode;
  if (error.exitCode !== undefined) return error.exitCode;
  const { status = 500 } = ofOperation(error);
  if (status === 404) return notFoundExitCode;
  return { 400: usageExitCode, 500: 1 }[status] ?? refusedExitCode;
}

/** The error of a command with `--json`, on standard error. */
export function failureJson(error: Failure): string {
  const { code, status } = ofOperation(error);
  return JSON.stringify({ error: { message: error.message, code, status, exitCode: failureCodeOf(error) } });
}

/** Marks errors of `read` as those of arguments. */
export function asUsage<Value>(read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    throw Object.assign(error as Error, { exitCode: usageExitCode });
  }
}
