// Results of checks, for `tollgate doctor` and system.getStatus.

/** `unknown`: the check was not possible, for example because a managed Redis rejects CONFIG. */
type Status = 'ok' | 'warning' | 'fault' | 'unknown';

export interface Finding {
  check: string;
  status: Status;
  found: string;
  /** How to fix it. */
  change?: string;
}

export const ok = (check: string, found: string): Finding => ({ check, status: 'ok', found });
export const warning = (check: string, found: string, change: string): Finding => ({
  check,
  status: 'warning',
  found,
  change,
});
export const fault = (check: string, found: string, change: string): Finding => ({
  check,
  status: 'fault',
  found,
  change,
});
export const unknown = (check: string, found: string, change: string): Finding => ({
  check,
  status: 'unknown',
  found,
  change,
});
