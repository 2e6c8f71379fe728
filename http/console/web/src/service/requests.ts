/** Requests to the public API of the service, on the origin that the page came from. */

export class Refused extends Error {
  /** The service's answer to a request that it did not carry out: its status, and one problem per line. */
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export interface Answer<T> {
  readonly data: T;
  /** The path of the next page of a list; null at its end. */
  readonly next: string | null;
  readonly headers: Headers;
  readonly status: number;
}

const NOT_MODIFIED = 304;

/** What an answer to the same path may be made of, and the answer that is there. */
export interface Asking<T> {
  /** In s: one that the service has made for somebody else will do, if it is no older. */
  readonly ageMax?: number;
  /** The same object is returned again when nothing has changed. */
  readonly before?: Answer<T> | null;
}

interface Sending {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Goes on when the page is left. */
  keepalive?: boolean;
}

let csrfToken: string | null = null;

/** The token that belongs to the cookie of a signed-in browser: the service wants it with every change. */
export function useCsrfToken(token: string | null): void {
  csrfToken = token;
}

const signInListeners = new Set<() => void>();

/** Calls `listener` when the service says that nobody is signed in (any more). */
export function onSignInNeeded(listener: () => void): void {
  signInListeners.add(listener);
}

/** The service's clock minus the browser's, in ms; 0 while they differ by less than headers can tell. */
export let clockOffsetMs = 0;

const HEADER_PRECISION_MS = 2000;

function readClock(headers: Headers, sentAt: number): void {
  const there = Date.parse(headers.get("Date") ?? "");
  if (Number.isNaN(there)) return;
  const offset = there + 500 - (sentAt + Date.now()) / 2;
  clockOffsetMs = Math.abs(offset) < HEADER_PRECISION_MS ? 0 : offset;
}

/** Sends a request and reads its answer. Throws Refused for an error of the service, TypeError without a connection. */
export async function send<T>(path: string, { method = "GET", body, headers = {}, signal, keepalive = false }: Sending = {}): Promise<Answer<T>> {
  const sentAt = Date.now();
  const given: Record<string, string> = { Accept: "application/json", ...headers };
  if (method !== "GET" && csrfToken !== null) given["X-CSRF-Token"] = csrfToken;
  const init: RequestInit = { method, headers: given, credentials: "same-origin", keepalive };
  if (body !== undefined) init.body = typeof body === "string" ? body : JSON.stringify(body);
  if (signal !== undefined) init.signal = signal;
  const answer = await fetch(path, init);
  readClock(answer.headers, sentAt);
  if (!answer.ok && answer.status !== NOT_MODIFIED) throw await refusal(answer);
  const text = await answer.text();
  const data = (text === "" ? null : JSON.parse(text)) as T;
  return { data, next: nextPage(answer.headers.get("Link")), headers: answer.headers, status: answer.status };
}

/** A GET request that is sent again and again. Throws as `send`. */
export async function ask<T>(path: string, { ageMax = 0, before = null }: Asking<T>, signal: AbortSignal): Promise<Answer<T>> {
  const headers: Record<string, string> = {};
  const tag = before?.headers.get("ETag") ?? null;
  if (ageMax > 0) headers["Cache-Control"] = `max-age=${ageMax}`;
  if (tag !== null) headers["If-None-Match"] = tag;
  const answer = await send<T>(path, { headers, signal });
  return tag !== null && before !== null && answer.status === NOT_MODIFIED ? before : answer;
}

async function refusal(answer: Response): Promise<Refused> {
  if (answer.status === 401) for (const listener of signInListeners) listener();
  return new Refused(answer.status, (await answer.text()).trim() || `${answer.status} ${answer.statusText}`);
}

/** The text of a GET request, where it is no JSON. Throws as `send`. */
export async function getText(path: string): Promise<string> {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (!answer.ok) throw await refusal(answer);
  return answer.text();
}

/** The data of a GET request. Throws as `send`. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send<T>(path, signal === undefined ? {} : { signal })).data;
}

/** Asks for a change. Throws as `send`. */
export async function post<T>(path: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<T> {
  return (await send<T>(path, { method: "POST", body, headers })).data;
}

function nextPage(link: string | null): string | null {
  return /<([^>]+)>;\s*rel="next"/.exec(link ?? "")?.[1] ?? null;
}

/** A query string of the parameters that have a value, with its question mark; "" without any. */
export function query(params: Record<string, string | number | boolean | readonly string[] | undefined | null>): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) found.append(name, String(one));
  }
  const text = found.toString();
  return text === "" ? "" : `?${text}`;
}

/** A part of a path, whatever characters it has. */
export const part = encodeURIComponent;
