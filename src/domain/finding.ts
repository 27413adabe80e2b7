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

const toChange =
  (status: Status) =>
  (check: string, found: string, change: string): Finding => ({ check, status, found, change });
export const warning = toChange('warning');
export const fault = toChange('fault');
export const unknown = toChange('unknown');
