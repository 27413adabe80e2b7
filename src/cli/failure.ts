// How a command fails: its exit code, and its error as JSON. docs/running.md lists the codes.

/** The arguments are wrong, or the server refused the input. */
export const usageExitCode = 2;
const notFoundExitCode = 3;
/** The server refused it for another reason, or cannot be reached. */
const refusedExitCode = 4;
/** That of a program which SIGPIPE ended: nobody reads the output any more. */
const closedExitCode = 141;

interface Failure {
  message: string;
  /** Of an operation: that of the error response, and its status. */
  code?: string;
  status?: number;
  exitCode?: number;
  cause?: unknown;
}

export const isClosed = (error: unknown): boolean => (error as Failure).code === 'EPIPE';
/** Of an error that wraps another one, that of the other. */
const operationError = (error: Failure): Failure =>
  error.status === undefined && error.cause instanceof Error ? operationError(error.cause) : error;

export function failureCodeOf(error: unknown): number {
  if (isClosed(error)) return closedExitCode;
  const { exitCode } = error as Failure;
  const { status } = operationError(error as Failure);
  if (exitCode !== undefined) return exitCode;
  if (status === undefined || status === 500) return 1;
  return { 400: usageExitCode, 404: notFoundExitCode }[status] ?? refusedExitCode;
}

/** The error of a command with `--json`, on standard error. */
export function failureJson(error: unknown): string {
  const { code, status } = operationError(error as Failure);
  return JSON.stringify({
    error: { message: (error as Failure).message, code, status, exitCode: failureCodeOf(error) },
  });
}

/** Marks errors of `read` as those of arguments. */
export function asUsage<Value>(read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    throw Object.assign(error as Error, { exitCode: usageExitCode });
  }
}
