/** What a task function can read and ask for beyond its input. */

import type { Bridge } from "./bridge.js";
import { ConflictError } from "./errors.js";
import { Outbox } from "./outbox.js";
import { TaskCancelled } from "./outcomes.js";
import type { PolledTask } from "./types.js";

const SIGNAL_MS = 30_000; // of one request

export type Level = "debug" | "info" | "warning" | "error" | "critical";

export class Context {
  readonly runId: string;
  readonly stepId: string;
  readonly taskId: string;
  readonly workflow: string;
  /** From 1. */
  readonly attempt: number;
  /** Of a loop, from 0. */
  readonly iteration: number;
  /** How often this attempt was delivered, from 1. */
  readonly deliveries: number;
  readonly metadata: Readonly<Record<string, string>>;
  /** The number of a map's element, from 0. */
  readonly item: number | undefined;
  /** Why a planner's attempt before this one has failed. */
  readonly previousError: string | undefined;
  /** The span of this execution (W3C Trace Context). */
  readonly traceParent: string | undefined;
  /** Aborted when the result is not wanted any more, with a TaskCancelled: give it to `fetch` and the like. */
  readonly signal: AbortSignal;
  private readonly outbox: Outbox;
  private saved: unknown;

  constructor(
    private readonly bridge: Bridge,
    task: PolledTask,
    private readonly abort: AbortController,
  ) {
    this.runId = task.run_id;
    this.stepId = task.step_id;
    this.taskId = task.task_id;
    this.workflow = task.workflow_name;
    this.attempt = task.attempt;
    this.iteration = task.iteration;
    this.deliveries = task.deliveries ?? 1;
    this.metadata = task.metadata ?? {};
    this.item = task.item;
    this.previousError = task.previous_error;
    this.traceParent = task.trace_parent;
    this.signal = abort.signal;
    this.saved = task.checkpoint;
    this.outbox = new Outbox(bridge, task.task_id, abort.signal);
  }

  /** Throws TaskCancelled if the result is not wanted any more. */
  throwIfCancelled(): void {
    this.signal.throwIfAborted();
  }

  /** What an earlier delivery, attempt or iteration has kept, or this one; undefined if nothing was. */
  loadCheckpoint<T>(): T | undefined {
    return this.saved as T | undefined;
  }

  /** Keep a value (JSON, at most 1 MiB) for later deliveries, attempts and iterations, until the run ends. */
  async checkpoint(value: unknown): Promise<void> {
    this.throwIfCancelled();
    try {
      await this.bridge.untilStored(this.taskId, { action: "checkpoint", data: value ?? null }, this.signal);
    } catch (error) {
      if (error instanceof ConflictError) this.abort.abort(new TaskCancelled(error.message));
      this.throwIfCancelled();
      throw error;
    }
    this.saved = value ?? null;
  }

  /** The payload of the run's signal: its JSON, or its bytes if it is none. A signal is kept: one that came before
   * counts. Throws a TimeoutError (DOMException) when the time is over. */
  async waitSignal<T = unknown>(name: string, options: { timeoutMs?: number } = {}): Promise<T> {
    const timeout = options.timeoutMs === undefined ? [] : [AbortSignal.timeout(options.timeoutMs)];
    const stop = AbortSignal.any([this.signal, ...timeout]);
    for (;;) {
      stop.throwIfAborted();
      const found = await this.bridge.signal(this.runId, name, SIGNAL_MS, stop);
      if (found !== undefined) return decoded(found) as T;
    }
  }

  /** Send a signal to a run: bytes as they are, anything else as JSON. */
  async sendSignal(runId: string, name: string, payload: unknown = null): Promise<void> {
    await this.bridge.sendSignal(runId, name, payload, this.signal);
  }

  /** Log a line. It returns at once, as `stream` and `progress` do: what finds no room is dropped and counted. */
  log(text: string, fields: Readonly<Record<string, unknown>> = {}, level: Level = "info"): void {
    this.outbox.log({ text, level, at: new Date().toISOString(), fields });
  }

  /** Show a chunk (JSON, at most 64 KiB), such as a token, to who follows the step. */
  stream(chunk: unknown): void {
    this.outbox.stream(chunk);
  }

  /** Show that `done` of `total` is done. */
  progress(done: number, total?: number, text?: string): void {
    this.outbox.progress({ done, total, text });
  }

  /** Returns when what was said is stored, or after a minute. Called by the worker. */
  flush(): Promise<void> {
    return this.outbox.flush();
  }
}

function decoded(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    return body;
  }
}
