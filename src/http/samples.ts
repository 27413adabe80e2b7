// Samples of calls for the API reference: the example of each operation as a program in each of four languages. Secrets
// and ids are read from environment variables, so a sample runs as it is pasted.

import type { OpenApiDocument } from './openapi.ts';

/**
 * The paths that the reference begins with. Their samples have only these fields of the example, which need no other
 * record than the API or the key.
 */
export const firstPaths: Readonly<Record<string, readonly string[]>> = {
  '/v2/keys.verifyKey': ['key'],
  '/v2/keys.createKey': ['apiId', 'prefix', 'name', 'ratelimits'],
  '/v2/ratelimits.limit': ['namespace', 'identifier', 'limit', 'duration'],
};

/** In place of the address of the server, which the page knows. */
export const sampleOrigin = '{origin}';

interface Language {
  indent: string;
  variable: (name: string) => string;
  /** What is written in place of brackets, `true`, `false` and `null`. */
  tokens?: Record<string, string>;
  /** What is written in place of a string of JSON. */
  text?: (quoted: string, isName: boolean) => string;
  program: (url: string, body: string) => string;
}

const languages: Record<string, Language> = {
  curl: {
    indent: '  ',
    variable: (name) => `"'"$${name}"'"`,
    text: (quoted) => quoted.replaceAll("'", `'\\''`),
    program: (url, body) => `curl ${url} \\
  -H "Authorization: Bearer $ROOT_KEY" \\
  -H 'Content-Type: application/json' \\
  -d '${body}'
`,
  },
  TypeScript: {
    indent: '  ',
    variable: (name) => `env.${name}`,
    text: (quoted, isName) => (isName && /^"[a-z]\w*"$/i.test(quoted) ? quoted.slice(1, -1) : quoted),
    program: (url, body) => `import { env } from "node:process";

const response = await fetch("${url}", {
  method: "POST",
  headers: { Authorization: \`Bearer \${env.ROOT_KEY}\`, "Content-Type": "application/json" },
  body: JSON.stringify(${body}),
});
console.log(response.status, await response.json());
`,
  },
  Python: {
    indent: '    ',
    variable: (name) => `os.environ["${name}"]`,
    tokens: { true: 'True', false: 'False', null: 'None' },
    program: (url, body) => `import json, os, urllib.request

request = urllib.request.Request(
    "${url}",
    headers={"Authorization": "Bearer " + os.environ["ROOT_KEY"], "Content-Type": "application/json"},
    data=json.dumps(${body}).encode(),
)
with urllib.request.urlopen(request) as response:
    print(response.status, json.load(response))
`,
  },
  Go: {
    indent: '\t',
    variable: (name) => `os.Getenv("${name}")`,
    tokens: { '{': 'map[string]any{', '[': '[]any{', ']': '}', null: 'nil' },
    program: (url, body) => `package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	body, _ := json.Marshal(${body.replace(/(?<![{,])\n(?=\s*\})/g, ',\n')})
	request, _ := http.NewRequest("POST", "${url}", bytes.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+os.Getenv("ROOT_KEY"))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	fmt.Println(response.Status)
	io.Copy(os.Stdout, response.Body)
}
`,
  },
};

const tokensOfJson = /("(?:[^"\\]|\\.)*")(:?)|\b(?:true|false|null)\b|[{}[\]]/g;

/** Returns a value as an expression, in which the strings `$NAME` are environment variables. */
const expression = (value: unknown, { indent, variable, tokens = {}, text = (quoted) => quoted }: Language) =>
  JSON.stringify(value, undefined, indent)
    .replace(tokensOfJson, (token, quoted?: string, colon?: string) => {
      if (quoted === undefined) return tokens[token] ?? token;
      if (/^"\$[A-Z_\d]+"$/.test(quoted)) return variable(quoted.slice(2, -1));
      return `${text(quoted, colon === ':')}${colon}`;
    })
    .replaceAll('\n', `\n${indent}`);

function sampleOf(path: string, example: Record<string, unknown>) {
  /** The environment variables, by the id or secret of the example. */
  const names = new Map<string, string>();
  const named = (field: string, value: unknown) => {
    if (typeof value !== 'string' || !/_Example\d/.test(value)) return value;
    const name = field.replace(/[A-Z]/g, '_$&').toUpperCase();
    const isTaken = [...names.values()].includes(name);
    if (!names.has(value)) names.set(value, isTaken ? `${name}_${names.size + 1}` : name);
    return `$${names.get(value)}`;
  };
  const fields = firstPaths[path];
  const request = fields ? Object.fromEntries(fields.map((field) => [field, example[field]])) : example;
  const body = JSON.parse(JSON.stringify(request), (field, value) => {
    if (Array.isArray(value)) return value.map((each) => named(field.replace(/s$/, ''), each));
    return /^\d*$/.test(field) ? value : named(field, value);
  });
  const programs = Object.entries(languages).map(([name, language]) => {
    return [name, language.program(sampleOrigin + path, expression(body, language))];
  });
  return { variables: ['ROOT_KEY', ...names.values()], programs: Object.fromEntries(programs) };
}

/** Returns samples of the operations that take and return JSON, by path. */
export function samplesOf({ paths }: OpenApiDocument): Record<string, ReturnType<typeof sampleOf>> {
  const samples: Record<string, ReturnType<typeof sampleOf>> = {};
  for (const [path, { post }] of Object.entries(paths)) {
    const { content } = (post?.requestBody ?? {}) as {
      content?: Record<string, { example?: Record<string, unknown> }>;
    };
    const example = content?.['application/json']?.example;
    if (example && post?.responses[200]?.content['application/json']) samples[path] = sampleOf(path, example);
  }
  return samples;
}
