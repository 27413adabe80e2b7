// Text that was read from a file, the environment, standard input or a request.

/** Without the byte order mark that some editors write before UTF-8 (RFC 8259, section 8.1). */
export const withoutMark = (text: string): string => (text.startsWith('\ufeff') ? text.slice(1) : text);

/** The value that a text contains: without blanks, line ends and a byte order mark around it. */
export const valueIn = (text: string): string => withoutMark(text).trim();
