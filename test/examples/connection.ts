// A client of the gateways that sends exactly the given bytes.

import { connect, type Socket } from 'node:net';

export interface Answer {
  status: number;
  headers: Map<string, string>;
  text: string;
}

/** A connection of a client that sends exactly the given bytes. */
export class Connection {
  readonly socket: Socket;
  #buffer = Buffer.alloc(0);
  #ended = false;

  #wake = () => {};

  constructor(port: number, localAddress?: string) {
    this.socket = connect({ port, host: '127.0.0.1', ...(localAddress && { localAddress }) });
    // No response of a gateway takes longer, even while Tollgate hangs.
    this.socket.setTimeout(15_000, () => this.socket.destroy());
    this.socket
      .on('data', (data) => {
        this.#buffer = Buffer.concat([this.#buffer, data]);
        this.#wake();
      })
      .on('error', () => {})
      .on('close', () => {
        this.#ended = true;
        this.#wake();
      });
  }

  get isOpen(): boolean {
    return !this.#ended;
  }

  async #until<Value>(read: () => Value | undefined): Promise<Value> {
    for (;;) {
      const value = read();
      if (value !== undefined) return value;
      if (this.#ended) throw new Error(`No answer: ${this.#buffer.toString('latin1').slice(0, 500)}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #take(bytes: number): Buffer {
    const taken = this.#buffer.subarray(0, bytes);
    this.#buffer = this.#buffer.subarray(bytes);
    return taken;
  }

  async #line(): Promise<string> {
    const end = await this.#until(() => {
      const at = this.#buffer.indexOf('\r\n');
      return at < 0 ? undefined : at;
    });
    const line = this.#take(end).toString('latin1');
    this.#take(2);
    return line;
  }

  async #bytes(count: number): Promise<string> {
    await this.#until(() => (this.#buffer.length >= count ? true : undefined));
    return this.#take(count).toString();
  }

  status = async (): Promise<number> => Number((await this.#line()).split(' ')[1]);

  /** The next response. Interim responses are skipped. */
  async answer(): Promise<Answer> {
    const status = await this.status();
    const headers = new Map<string, string>();
    for (let line = await this.#line(); line !== ''; line = await this.#line()) {
      const colon = line.indexOf(':');
      const name = line.slice(0, colon).toLowerCase();
      const before = headers.get(name);
      headers.set(name, (before === undefined ? '' : `${before}, `) + line.slice(colon + 1).trim());
    }
    if (status === 100) return this.answer();
    if (status === 101) return { status, headers, text: '' };
    let text = '';
    if (headers.get('transfer-encoding') === 'chunked') {
      for (;;) {
        const size = Number.parseInt(await this.#line(), 16);
        text += await this.#bytes(size);
        await this.#line();
        if (size === 0) break;
      }
    } else text = await this.#bytes(Number(headers.get('content-length') ?? 0));
    return { status, headers, text };
  }

  /** Bytes received without HTTP framing, after an upgrade. */
  read = (count: number): Promise<string> => this.#bytes(count);
}
