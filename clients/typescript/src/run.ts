/** One run: what it is, what it does, and its result. */

import { setTimeout as sleep } from "node:timers/promises";
import { type Connection, path, pauseMs } from "./connection.js";
import { NotFoundError, PenstockError, ResultTimeoutError, RunFailedError, TooLargeError } from "./errors.js";
import { events, type FollowOptions, hasEnded } from "./following.js";
import type { Run, RunEvent } from "./types.js";

const WAIT_MS_MAX = 30_000; // of one request
const INLINE_BYTES_MAX = 65_536; // larger payloads are left out while the last event is looked for

export interface ResultOptions {
  /** How long to wait, in milliseconds; default: until the run has ended. */
  timeoutMs?: number | undefined;
  /** Ends the wait: it throws the signal's reason. The run goes on. */
  signal?: AbortSignal | undefined;
}

export class RunHandle<Output = unknown> {
  /** The run's id. Rejected if the run could not be started. */
  readonly id: Promise<string>;

  constructor(
    private readonly connection: Connection,
    id: string | Promise<string>,
  ) {
    this.id = Promise.resolve(id);
    this.id.catch(() => undefined); // whoever awaits it, or calls a method, gets the error
  }

  /** The run as it is now. */
  async get(): Promise<Run> {
    return this.connection.json("GET", path`/runs/${await this.id}`);
  }

  /** The run's events, those of the past first, until it has ended. */
  async *events(options: FollowOptions = {}): AsyncGenerator<RunEvent, void, undefined> {
    yield* events(this.connection, await this.id, options);
  }

  /** Wait until the run has ended, and give its output: null if it has none.
   *
   * Throws RunFailedError if it has failed or was cancelled, ResultTimeoutError when the time is over, and TooLargeError
   * for an output over 1 MiB, which can be read from the steps (`client.stepOutput`). While the service cannot be
   * reached, it waits on. */
  async result(options: ResultOptions = {}): Promise<Output> {
    const started = Date.now();
    const runId = await this.id;
    const run = await this.ended(runId, started, options);
    if (run.status !== "completed") throw new RunFailedError(runId, run.status, run.error ?? `the run was ${run.status}`);
    return (await this.output(runId)) as Output;
  }

  private async ended(runId: string, started: number, options: ResultOptions): Promise<Run> {
    const timeoutMs = options.timeoutMs ?? Number.POSITIVE_INFINITY;
    for (let failures = 0; ; ) {
      const left = started + timeoutMs - Date.now();
      const waitMs = Math.max(0, Math.min(left, WAIT_MS_MAX));
      const query = { wait_ms: Math.ceil(waitMs), payload_max: 0 };
      try {
        const run = await this.connection.json<Run>("GET", path`/runs/${runId}`, { query, waitMs, signal: options.signal });
        if (hasEnded(run.status)) return run;
        failures = 0;
      } catch (error) {
        if (!isPassing(error)) throw error;
        await sleep(Math.min(pauseMs(failures), Math.max(left, 0)), undefined, { signal: options.signal });
        failures += 1;
      }
      if (Date.now() - started >= timeoutMs) throw new ResultTimeoutError(runId, timeoutMs);
    }
  }

  /** The output in the newest `workflow.completed`: a run that was resumed after a failure has events before it. */
  private async output(runId: string): Promise<unknown> {
    const where = path`/runs/${runId}/events`;
    let last: RunEvent | undefined;
    for await (const event of this.connection.pages<RunEvent>(where, { payload_max: INLINE_BYTES_MAX })) {
      if (event.type === "workflow.completed") last = event;
    }
    if (last?.payload_bytes !== undefined) {
      [last] = await this.connection.json<RunEvent[]>("GET", where, { query: { after: last.seq - 1, limit: 1 } });
    }
    if (last === undefined) throw new NotFoundError(`the history of run ${runId} has no workflow.completed any more`);
    const found = last.payload as { output?: unknown; output_bytes?: number } | undefined;
    if (found?.output_bytes === undefined) return found?.output ?? null;
    throw new TooLargeError(`the output of run ${runId} has ${found.output_bytes} bytes: read it from its last steps`);
  }
}

function isPassing(error: unknown): boolean {
  return error instanceof PenstockError && (error.status === undefined || error.status >= 500);
}
