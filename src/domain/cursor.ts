/** A cursor: the page of a list after this id. The name of a list is one word. */
export const cursorAfter = (list: string, id: string): string => Buffer.from(`${list} ${id}`).toString('base64url');
