// Paths of screens that are named by a text of a caller: a customer, a plan, a namespace.

/**
 * A text as a part of a path. A browser takes `.` and `..` for steps in the path, even if they are encoded, and the
 * router decodes a path once. So other texts than plain words are encoded twice.
 */
function partOf(text: string): string {
  if (/^[\w-][\w.-]*$/.test(text)) return text;
  return encodeURIComponent(encodeURIComponent(text).replaceAll('.', '%2E'));
}

/** The text of a part that the router has decoded once. */
export function textOfPart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    // Typed by hand, with a % of its own.
    return part;
  }
}

export const customerPath = (externalId: string): string => `/customers/${partOf(externalId)}`;
export const planPath = (planId: string): string => `/plans/${partOf(planId)}`;
export const namespacePath = (name: string): string => `/rate-limits/${partOf(name)}`;
