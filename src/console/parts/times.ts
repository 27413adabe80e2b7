// Times in UTC as the field for one wants them.

export const inputTime = (ms: number | undefined): string =>
  ms === undefined ? '' : new Date(ms).toISOString().slice(0, 16);
export const timeOfInput = (text: string): number | undefined => (text === '' ? undefined : Date.parse(`${text}Z`));
