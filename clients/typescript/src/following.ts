/** Live streams of one run that outlive their connections: each goes on behind the last sequence that arrived. */

import { setTimeout as sleep } from "node:timers/promises";
import { type Connection, path, pauseMs } from "./connection.js";
import { UnavailableError } from "./errors.js";
import type { ServerEvent } from "./server_events.js";
import type { Run, RunEvent } from "./types.js";

const SILENCE_MS = 60_000; // the service writes a comment more often
const FAILURES_MAX = 15; // connections in a row that brought nothing: a minute
const ENDED = new Set(["completed", "failed", "cancelled"]);
const LAST = new Set(["workflow.completed", "workflow.failed", "workflow.cancelled"]);

export interface FollowOptions {
  /** Only what is behind this sequence. */
  after?: number | undefined;
  /** Ends the iteration: it throws the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Whether a run of this status goes no further by itself. */
export function hasEnded(status: string): boolean {
  return ENDED.has(status);
}

/** The events of a run until it has ended, those of the past first. */
export async function* events(
  connection: Connection,
  runId: string,
  options: FollowOptions,
): AsyncGenerator<RunEvent, void, undefined> {
  let last = "";
  async function over(received: boolean): Promise<boolean> {
    if (LAST.has(last)) return true;
    const run = await connection.json<Run>("GET", path`/runs/${runId}`, { query: { payload_max: 0 } });
    return !received && hasEnded(run.status);
  }
  for await (const one of reconnecting(connection, path`/runs/${runId}/events`, {}, options, over)) {
    const event = { seq: Number(one.id), ...JSON.parse(one.data) } as RunEvent;
    last = event.type;
    yield event;
  }
}

/** What a stream with an event `end` of its own brings before it: log lines or chunks. */
export async function* untilEnd<T>(
  connection: Connection,
  where: string,
  query: Readonly<Record<string, string | undefined>>,
  name: string,
  options: FollowOptions,
): AsyncGenerator<T & { seq: number }, void, undefined> {
  let ended = false;
  const over = (): Promise<boolean> => Promise.resolve(ended);
  for await (const one of reconnecting(connection, where, query, options, over)) {
    ended = one.event === "end";
    if (ended) return;
    if (one.event === name) yield { seq: Number(one.id), ...JSON.parse(one.data) };
  }
}

/** Server-sent events of one stream after another, until `over` says of one that ended properly that it was the last.
 * `over` gets whether the stream has brought any. */
async function* reconnecting(
  connection: Connection,
  where: string,
  query: Readonly<Record<string, string | undefined>>,
  options: FollowOptions,
  over: (received: boolean) => Promise<boolean>,
): AsyncGenerator<ServerEvent, void, undefined> {
  let after = options.after === undefined ? undefined : String(options.after);
  for (let failures = 0; ; ) {
    let received = false;
    try {
      const headers: Record<string, string> = after === undefined ? {} : { "last-event-id": after };
      const request = { query, headers, silenceMs: SILENCE_MS, signal: options.signal };
      for await (const one of connection.stream("GET", where, request)) {
        if (one.id !== "") after = one.id;
        received = true;
        failures = 0;
        yield one;
      }
      if (await over(received)) return;
    } catch (error) {
      if (!(error instanceof UnavailableError) || failures >= FAILURES_MAX) throw error;
    }
    await sleep(pauseMs(failures), undefined, { signal: options.signal });
    failures += 1;
  }
}
