/** The worker: takes tasks of the types that it has functions for, and reports what came of them. */

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { Bridge } from "./bridge.js";
import { Connection, type ConnectionOptions, pauseMs } from "./connection.js";
import { Context } from "./context.js";
import { NotFoundError, PenstockError, UnavailableError } from "./errors.js";
import { Continue, NonRetriable, Pause, RetryAfter, TaskCancelled } from "./outcomes.js";
import type { PolledTask, Resolution } from "./types.js";

export type TaskFunction<Input, Output> = (
  input: Input,
  context: Context,
) => Output | Continue | Promise<Output | Continue>;

export interface WorkerOptions extends Pick<ConnectionOptions, "url" | "token"> {
  /** How many tasks it holds at one time, of all types together, 1 to 1,000; default: 100. */
  maxTasks?: number | undefined;
  /** Take only tasks of steps with this `worker_group`. */
  group?: string | undefined;
  /** Default: made of host name, process id and a random part. */
  workerId?: string | undefined;
  metadata?: Record<string, string> | undefined;
  /** How long running tasks have to finish when it stops, in milliseconds; default: 10,000. */
  graceMs?: number | undefined;
  /** Told what goes wrong and passes, such as a lost connection or a task that failed; default: one line on stderr. */
  onWarning?: ((event: string, error: unknown, task?: PolledTask) => void) | undefined;
}

interface Held {
  task: PolledTask;
  abort: AbortController;
  done: Promise<void>;
}

const POLL_MS = 30_000;
const POLL_TASKS_MAX = 1_000;
const HEARTBEAT_MS = 10_000;
const RELEASE_MS = 2_000; // what the last poll may take to end when the worker stops
const PAUSE_MS_MAX = 2_000;
const TEXT_MAX = 8_192;
const SIGNALS = ["SIGTERM", "SIGINT"] as const;

export class Worker {
  readonly workerId: string;
  private readonly bridge: Bridge;
  private readonly functions = new Map<string, TaskFunction<never, unknown>>();
  private readonly held = new Map<string, Held>();
  private readonly maxTasks: number;
  private readonly graceMs: number;
  private readonly warn: NonNullable<WorkerOptions["onWarning"]>;
  private readonly left = new AbortController(); // ends the connection, and what still waits for the service
  private readonly stopping = new AbortController(); // ends the polls
  private lastPoll = new AbortController();
  private freed: () => void = () => undefined;
  private polling: Promise<void> | undefined;
  private connecting: Promise<void> | undefined;
  private beating: NodeJS.Timeout | undefined;
  private stopped: Promise<void> | undefined;

  /** `token` is by default the variable SERVICE_BRIDGE_TOKEN. Throws TypeError for an address that is none, RangeError for
   * a `maxTasks` that cannot be. */
  constructor(private readonly options: WorkerOptions = {}) {
    const token = options.token ?? process.env.SERVICE_BRIDGE_TOKEN;
    this.bridge = new Bridge(new Connection({ url: options.url, token, timeoutMs: 20_000, retries: 0 }));
    this.workerId = options.workerId ?? `${nameOfHost()}-${process.pid}-${randomBytes(3).toString("hex")}`;
    this.maxTasks = options.maxTasks ?? 100;
    if (!Number.isInteger(this.maxTasks) || this.maxTasks < 1 || this.maxTasks > POLL_TASKS_MAX) {
      throw new RangeError(`maxTasks is ${this.maxTasks}: it must be a whole number from 1 to ${POLL_TASKS_MAX}`);
    }
    this.graceMs = options.graceMs ?? 10_000;
    this.warn = options.onWarning ?? logged;
  }

  /** Carry out the tasks of a type. The output is what the function returns, as JSON; what it throws fails the attempt. */
  task<Input = unknown, Output = unknown>(type: string, call: TaskFunction<Input, Output>): this {
    if (this.functions.has(type)) throw new TypeError(`task "${type}" has a function already`);
    if (this.connecting !== undefined) throw new TypeError(`task "${type}": the worker has started already`);
    this.functions.set(type, call as TaskFunction<never, unknown>);
    return this;
  }

  /** Work until SIGTERM or SIGINT, or until `stop` is called; a second signal ends the process at once. Throws what
   * `start` throws. */
  async run(): Promise<void> {
    let signalled: () => void = () => undefined;
    const ignore = (): void => SIGNALS.forEach((name) => process.removeListener(name, signalled));
    const until = new Promise<void>((resolve) => {
      signalled = () => {
        ignore();
        resolve();
      };
    });
    for (const name of SIGNALS) process.on(name, signalled);
    try {
      await Promise.race([this.start(), until]);
      await Promise.race([this.polling, until]);
      await this.stop();
    } finally {
      ignore();
      this.left.abort();
    }
  }

  /** Register, and take tasks from then on. While the service is not there, it waits. Throws what the service refuses:
   * UnauthorizedError, InvalidError for a task type that cannot be. */
  async start(): Promise<void> {
    if (this.functions.size === 0) throw new TypeError("the worker has no task function");
    if (this.connecting !== undefined) throw new TypeError("the worker has started already");
    await new Promise<void>((resolve, reject) => {
      this.connecting = this.stayConnected(resolve, reject);
    });
    if (this.stopping.signal.aborted) return;
    this.beating = setInterval(() => void this.beat(), HEARTBEAT_MS);
    this.polling = this.poll();
  }

  /** Take no more tasks, let running ones finish for `graceMs`, and give back those that are left: another worker gets
   * them at once. Their contexts are aborted. */
  stop(): Promise<void> {
    this.stopped ??= this.end();
    return this.stopped;
  }

  private async end(): Promise<void> {
    this.stopping.abort();
    this.freed();
    if (this.polling !== undefined) await this.endPolls();
    const timer = new AbortController();
    const grace = sleep(this.graceMs, undefined, { signal: timer.signal }).catch(() => undefined);
    await Promise.race([Promise.all([...this.held.values()].map((one) => one.done)), grace]);
    timer.abort();
    const leaving = [...this.held.values()];
    this.held.clear();
    const back = leaving.map(({ task, abort }) => {
      abort.abort(new TaskCancelled("the worker stops"));
      return this.bridge.resolve(task.task_id, { action: "pause", duration_ms: 0 });
    });
    await Promise.allSettled(back);
    clearInterval(this.beating);
    this.left.abort();
    await this.connecting;
  }

  /** The service ends the last poll: if it were cut off, tasks on their way would be delivered again only minutes later.
   * A service that is away cannot; then it is cut off. */
  private async endPolls(): Promise<void> {
    const late = AbortSignal.timeout(RELEASE_MS);
    late.addEventListener("abort", () => this.lastPoll.abort());
    await this.bridge.poll(this.request(0, 0), late).catch(() => this.lastPoll.abort());
    await this.polling;
  }

  private async stayConnected(first: () => void, refused: (error: unknown) => void): Promise<void> {
    const entry = {
      worker_id: this.workerId,
      task_types: [...this.functions.keys()],
      max_tasks: this.maxTasks,
      language: "typescript",
      hostname: nameOfHost(),
      pid: process.pid,
      metadata: this.options.metadata ?? {},
      ...(this.options.group === undefined ? {} : { worker_group: this.options.group }),
    };
    let known = false;
    let failures = 0;
    const opened = (): void => {
      known = true;
      failures = 0;
      first();
    };
    for (; !this.left.signal.aborted; failures += 1) {
      try {
        for await (const event of this.bridge.connected(entry, this.left.signal, opened)) {
          if (event.event === "cancel") this.cancel(JSON.parse(event.data));
        }
      } catch (error) {
        if (this.left.signal.aborted) break;
        if (!known && error instanceof PenstockError && !(error instanceof UnavailableError)) return refused(error);
        this.warn("disconnected", error);
      }
      await paused(failures, this.left.signal);
    }
    first(); // it was stopped before it was connected
  }

  private async poll(): Promise<void> {
    for (let failures = 0; !this.stopping.signal.aborted; ) {
      const room = this.maxTasks - this.held.size;
      if (room <= 0) {
        await new Promise<void>((resolve) => {
          this.freed = resolve;
        });
        continue;
      }
      try {
        this.lastPoll = new AbortController();
        const tasks = await this.bridge.poll(this.request(room, POLL_MS), this.lastPoll.signal);
        failures = 0;
        for (const task of tasks) this.take(task);
      } catch (error) {
        if (this.stopping.signal.aborted) return;
        this.warn("poll_failed", error);
        await paused(failures, this.stopping.signal);
        failures += 1;
      }
    }
  }

  private request(maxTasks: number, timeoutMs: number) {
    const group = this.options.group === undefined ? {} : { worker_group: this.options.group };
    const task_types = [...this.functions.keys()];
    return { task_types, max_tasks: maxTasks, timeout_ms: timeoutMs, worker_id: this.workerId, ...group };
  }

  private take(task: PolledTask): void {
    const call = this.functions.get(task.task);
    if (this.stopping.signal.aborted || call === undefined) {
      void this.bridge.resolve(task.task_id, { action: "pause", duration_ms: 0 }).catch(() => undefined);
      return;
    }
    const abort = new AbortController();
    this.held.get(task.task_id)?.abort.abort(new TaskCancelled("the task was delivered again"));
    const held: Held = { task, abort, done: Promise.resolve() };
    this.held.set(task.task_id, held);
    held.done = this.carryOut(call, held).finally(() => {
      if (this.held.get(task.task_id) === held) this.held.delete(task.task_id);
      this.freed();
    });
  }

  private async carryOut(call: TaskFunction<never, unknown>, held: Held): Promise<void> {
    const { task, abort } = held;
    const context = new Context(this.bridge, task, abort);
    let answer: Resolution;
    try {
      answer = completed(await call(task.input as never, context));
    } catch (error) {
      answer = failed(error);
      if (!abort.signal.aborted && answer.action === "fail") this.warn("task_failed", error, task);
    }
    await context.flush();
    if (this.held.get(task.task_id) !== held) return; // it was given back, or is carried out anew
    await this.report(task, abort.signal.aborted ? givenUp(task, abort.signal.reason) : answer);
  }

  private async report(task: PolledTask, answer: Resolution): Promise<void> {
    try {
      await this.bridge.untilStored(task.task_id, answer, this.left.signal);
    } catch (error) {
      if (error instanceof NotFoundError || this.left.signal.aborted) return; // somebody else has it, or had answered
      if (answer.action === "fail") return this.warn("not_reported", error, task);
      // the same answer would be refused again
      await this.report(task, { action: "fail", error: `the service refused the answer: ${text(error)}`, ...FOR_GOOD });
    }
  }

  /** Signs of life of all tasks; one of a task that was given up is refused, and so the function learns it. */
  private async beat(): Promise<void> {
    const held = new Map(this.held);
    if (held.size === 0) return;
    const over = await this.bridge.heartbeats([...held.keys()]).catch(() => new Map<string, string>());
    for (const [taskId, reason] of over) held.get(taskId)?.abort.abort(new TaskCancelled(reason));
  }

  private cancel(given: { task_id: string; attempt?: number; iteration?: number; reason?: string }): void {
    const found = this.held.get(given.task_id);
    if (found === undefined) return;
    const { attempt, iteration } = found.task;
    if (attempt !== (given.attempt ?? 1) || iteration !== (given.iteration ?? 0)) return;
    found.abort.abort(new TaskCancelled(given.reason ?? "cancelled"));
  }
}

/** Longer after each failure. Returns when the signal is aborted. */
async function paused(failures: number, signal: AbortSignal): Promise<void> {
  await sleep(Math.min(pauseMs(failures), PAUSE_MS_MAX), undefined, { signal }).catch(() => undefined);
}

const FOR_GOOD = { failure_type: "non_retriable" };

function completed(output: unknown): Resolution {
  if (output instanceof Continue) return { action: "continue", output: asJson(output.value) };
  return output === undefined ? { action: "complete" } : { action: "complete", output: asJson(output) };
}

/** What JSON makes of a value. Throws NonRetriable for what it cannot say: another attempt would give the same. */
function asJson(value: unknown): unknown {
  try {
    return JSON.parse(JSON.stringify(value) ?? "null");
  } catch (error) {
    throw new NonRetriable(`the output cannot be written as JSON: ${text(error)}`);
  }
}

function failed(error: unknown): Resolution {
  if (error instanceof Pause) {
    const { checkpoint, name } = error.options;
    const kept = checkpoint === undefined ? {} : { checkpoint };
    return { action: "pause", duration_ms: Math.round(error.delayMs), ...kept, ...(name === undefined ? {} : { name }) };
  }
  if (error instanceof NonRetriable) return { action: "fail", error: text(error), ...FOR_GOOD };
  if (error instanceof RetryAfter) {
    const retry_after_ms = Math.max(0, Math.round(error.delayMs));
    return { action: "fail", error: text(error), failure_type: "retry_after", retry_after_ms };
  }
  const traceback = error instanceof Error && error.stack !== undefined ? { traceback: error.stack.slice(-TEXT_MAX) } : {};
  const name = error instanceof Error ? `${error.name}: ` : "";
  return { action: "fail", error: `${name}${text(error)}`, ...traceback };
}

/** Ends an execution that is not wanted any more, and none of a later attempt. */
function givenUp({ attempt, iteration }: PolledTask, reason: unknown): Resolution {
  return { action: "fail", error: `cancelled: ${text(reason)}`, failure_type: "cancelled", attempt, iteration };
}

function text(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).slice(0, TEXT_MAX) || "no text";
}

/** Names may have other characters than host names. */
function nameOfHost(): string {
  return hostname().replace(/[^A-Za-z0-9_-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 64) || "host";
}

function logged(event: string, error: unknown, task?: PolledTask): void {
  const about = task === undefined ? {} : { task: task.task, run_id: task.run_id, step_id: task.step_id };
  console.error(JSON.stringify({ event, ...about, error: text(error) }));
}
