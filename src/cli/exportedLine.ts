// A line of an export.

import { print } from '../domain/json.ts';
import type { Kind, Marker } from './lineKinds.ts';

export const lineText = (kind: Kind | Marker, fields: object): string => `${print({ kind, ...fields })}\n`;

/** Of a record. */
export type ExportedLine = readonly [kind: Kind, text: string];
export const lineOf = (kind: Kind, fields: object): ExportedLine => [kind, lineText(kind, fields)];
