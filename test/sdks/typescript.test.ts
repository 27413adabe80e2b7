// Every method of `@unkey/api`, one by one. stories.test.ts has further values of some.

import { Unkey } from '@unkey/api';
import { UnkeyError } from '@unkey/api/models/errors';
import { expect, test } from 'vitest';
import { foreignMethods, methods } from './methods.ts';
import { type ResponseBody, type Sdk, SdkError, sdkTests } from './suite.ts';

/** Services for Unkey's deployments, gateways and portals, which Tollgate does not serve. */
const foreignServices = [
  ...['apps', 'deployments', 'domains', 'environments', 'gateway', 'github', 'internal', 'portal', 'projects'],
];

type Procedure = (input: unknown) => Promise<unknown>;
type Services = Record<string, Record<string, Procedure>>;

async function open(serverURL: string): Promise<Sdk> {
  async function* bodiesOf(rootKey: string, method: string, input: unknown, all: boolean) {
    const [service, procedure] = method.split('.') as [string, string];
    const client = (new Unkey({ rootKey, serverURL }) as unknown as Services)[service]!;
    const answer = await client[procedure]!(input);
    // A list is an iterator of its pages, the first of which has the members of a response.
    if (!(Symbol.asyncIterator in Object(answer))) yield answer as ResponseBody;
    else
      for await (const { result } of answer as AsyncIterable<{ result: ResponseBody }>) {
        yield result;
        if (!all) return;
      }
  }
  return {
    async call(rootKey, method, input, all = false) {
      try {
        const bodies: ResponseBody[] = [];
        for await (const body of bodiesOf(rootKey, method, input, all)) bodies.push(body);
        return bodies;
      } catch (error) {
        if (!(error instanceof UnkeyError)) throw error;
        const { meta, error: details } = error as UnkeyError & { meta?: unknown; error?: unknown };
        throw new SdkError(error.constructor.name, meta ? { meta, error: details } : error.body, error.statusCode);
      }
    },
    close() {},
  };
}

test('the table has every method of the SDK', () => {
  const unkey = new Unkey() as unknown as Services;
  const proceduresOf = (service: object) =>
    Object.getOwnPropertyNames(Object.getPrototypeOf(service)).filter((name) => name !== 'constructor');
  const getters = Object.entries(Object.getOwnPropertyDescriptors(Unkey.prototype)).filter(([, { get }]) => get);
  const services = getters.map(([name]) => name).filter((name) => !foreignServices.includes(name));
  const found = services.flatMap((service) =>
    proceduresOf(unkey[service]!).map((procedure) => `${service}.${procedure}`),
  );
  expect(found.sort()).toEqual([...Object.keys(methods), ...foreignMethods].sort());
});

sdkTests({ open });
