/** One service: sends requests, repeats those that are safe to repeat, reads pages and streams of events. */

import { setTimeout as sleep } from "node:timers/promises";
import { errorOf, lost, UnavailableError, UnreachableError } from "./errors.js";
import { read, type ServerEvent } from "./server_events.js";

export interface ConnectionOptions {
  /** The address of the service; default: the variable SERVICE_URL, or http://localhost:8080. */
  url?: string | undefined;
  /** The API token or a key. */
  token?: string | undefined;
  /** How long an answer may take, in milliseconds; default: 30,000. */
  timeoutMs?: number | undefined;
  /** How often a request that is safe to repeat is sent again; default: 5. */
  retries?: number | undefined;
}

export type Query = Readonly<Record<string, string | number | boolean | readonly string[] | null | undefined>>;

export interface Request {
  query?: Query | undefined;
  /** Sent as JSON, but for bytes, which are sent as they are. */
  body?: unknown;
  headers?: Readonly<Record<string, string>> | undefined;
  /** Sending it twice has the effect of sending it once. GET is, whatever this says. */
  repeatable?: boolean | undefined;
  /** Added to the time that an answer may take: for requests that wait. */
  waitMs?: number | undefined;
  signal?: AbortSignal | undefined;
  /** Whether an answer with a status of errors is one all the same: a workflow that is called chooses its status. */
  isAnswer?: ((answer: Response) => boolean) | undefined;
}

const FIRST_PAUSE_MS = 100;
const PAUSE_MS_MAX = 5_000;
const PROBLEM = "application/problem+json";

export class Connection {
  readonly url: string;
  private readonly token: string | undefined;
  private readonly timeoutMs: number;
  private readonly retries: number;

  constructor(options: ConnectionOptions) {
    this.url = (options.url ?? process.env.SERVICE_URL ?? "http://localhost:8080").replace(/\/+$/, "");
    if (!/^https?:\/\/[^/]/.test(this.url)) throw new TypeError(`"${this.url}" is no http:// or https:// address`);
    this.token = options.token;
    this.timeoutMs = options.timeoutMs ?? 30_000;
    this.retries = options.retries ?? 5;
  }

  /** The answer's JSON; undefined if it has no body. */
  async json<T>(method: string, path: string, request: Request = {}): Promise<T> {
    return this.repeated(method, path, request, decoded<T>);
  }

  /** The answer as bytes, whatever they are. */
  async bytes(method: string, path: string, request: Request = {}): Promise<Uint8Array> {
    return this.repeated(method, path, request, async (answer) => new Uint8Array(await answer.arrayBuffer()));
  }

  /** What `take` makes of the answer; it is asked again after an answer that was lost, if that is safe. */
  async repeated<T>(method: string, path: string, request: Request, take: (answer: Response) => Promise<T>): Promise<T> {
    const safe = method === "GET" || request.repeatable === true;
    for (let again = 0; ; again += 1) {
      try {
        return await this.once(method, path, request, take);
      } catch (error) {
        const repeat = error instanceof UnreachableError || (safe && error instanceof UnavailableError);
        if (!repeat || again >= this.retries) throw error;
        await sleep(error.retryAfterMs ?? pauseMs(again), undefined, { signal: request.signal });
      }
    }
  }

  /** All items of a list, page by page; a page is fetched when it is needed. `max` is how many there may be in all. */
  async *pages<T>(path: string, query: Query, max: number = Number.POSITIVE_INFINITY): AsyncGenerator<T, void, undefined> {
    let left = max;
    let next: string | undefined = withQuery(path, query);
    while (next !== undefined && left > 0) {
      const page: { items: T[]; next: string | undefined } = await this.repeated("GET", next, {}, async (answer) => ({
        items: await decoded<T[]>(answer),
        next: nextOf(answer.headers.get("link")),
      }));
      for (const item of page.items.slice(0, left)) yield item;
      left -= page.items.length;
      next = page.next;
    }
  }

  /** The server-sent events of one answer. `silenceMs`: the connection is lost if nothing comes for so long. `opened` is
   * called when the answer begins. */
  async *stream(
    method: string,
    path: string,
    request: Request & { silenceMs: number; opened?: () => void },
  ): AsyncGenerator<ServerEvent, void, undefined> {
    const idle = new AbortController();
    const stop = request.signal === undefined ? idle.signal : AbortSignal.any([idle.signal, request.signal]);
    const watch = setTimeout(() => idle.abort(new Error(`nothing came for ${request.silenceMs} ms`)), request.silenceMs);
    try {
      const answer = await this.sent(method, path, { ...request, signal: stop }, "text/event-stream");
      if (!answer.ok) throw await errorOf(answer);
      request.opened?.();
      if (answer.body !== null) yield* read(answer.body, () => watch.refresh());
    } catch (error) {
      request.signal?.throwIfAborted();
      throw typed(error, path);
    } finally {
      clearTimeout(watch);
      idle.abort(); // whoever leaves early leaves no connection behind
    }
  }

  private async once<T>(method: string, path: string, request: Request, take: (answer: Response) => Promise<T>): Promise<T> {
    const timeout = AbortSignal.timeout(this.timeoutMs + (request.waitMs ?? 0));
    const signal = request.signal === undefined ? timeout : AbortSignal.any([timeout, request.signal]);
    try {
      const answer = await this.sent(method, path, { ...request, signal }, "application/json");
      if (!answer.ok && request.isAnswer?.(answer) !== true) throw await errorOf(answer);
      return await take(answer);
    } catch (error) {
      request.signal?.throwIfAborted();
      throw typed(error, `${method} ${path}`);
    }
  }

  private sent(method: string, path: string, request: Request, accept: string): Promise<Response> {
    const headers: Record<string, string> = { accept: `${accept}, ${PROBLEM}`, ...request.headers };
    if (this.token !== undefined) headers.authorization = `Bearer ${this.token}`;
    const init: RequestInit = { method, headers, redirect: "error" };
    if (request.signal !== undefined) init.signal = request.signal;
    if (request.body instanceof Uint8Array) {
      init.body = request.body as Uint8Array<ArrayBuffer>;
    } else if (request.body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(request.body);
    }
    return fetch(this.url + withQuery(path, request.query ?? {}), init);
  }
}

/** Twice as long after each failure, and of random length, so that clients do not come back all at once. */
export function pauseMs(failures: number): number {
  return Math.min(FIRST_PAUSE_MS * 2 ** failures, PAUSE_MS_MAX) * (0.5 + Math.random() / 2);
}

/** A path whose parts are escaped: path`/runs/${runId}`. An empty part, or one of dots, is an error. */
export function path(texts: TemplateStringsArray, ...parts: readonly (string | number)[]): string {
  return texts.reduce((before, text, at) => {
    const part = String(parts[at - 1]);
    if (/^\.{0,2}$/.test(part)) throw new TypeError(`"${part}" cannot be part of a path`);
    return before + encodeURIComponent(part) + text;
  });
}

function withQuery(path: string, query: Query): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null) continue;
    for (const one of Array.isArray(value) ? value : [value]) found.append(name, String(one));
  }
  const text = found.toString();
  return text === "" ? path : `${path}${path.includes("?") ? "&" : "?"}${text}`;
}

function nextOf(link: string | null): string | undefined {
  return link?.match(/<([^>]+)>;\s*rel="next"/)?.[1];
}

async function decoded<T>(answer: Response): Promise<T> {
  const text = await answer.text();
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

/** Errors of the service stay as they are; a programmer's do, too. Anything else is an answer that was lost. */
function typed(error: unknown, what: string): unknown {
  const name = error instanceof Error ? error.name : "";
  if (name === "TypeError" && (error as Error).cause === undefined) {
    return /terminated|fetch failed/.test((error as Error).message) ? lost(error, what) : error;
  }
  return name === "TypeError" || name === "TimeoutError" || name === "AbortError" || name === "Error" ? lost(error, what) : error;
}
