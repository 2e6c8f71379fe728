/** The client: a method for each thing that the service does with runs, workflows, triggers and dead letters. */

import { randomUUID } from "node:crypto";
import { Connection, type ConnectionOptions, path, type Query } from "./connection.js";
import { type FollowOptions, untilEnd } from "./following.js";
import { RunHandle } from "./run.js";
import type * as types from "./types.js";
import type { components } from "./api.js";

type Schemas = components["schemas"];

export interface Keyed {
  /** The same key and workflow always give the same run. Without one the client makes one for each call, so that it can
   * send the request again after a lost answer. */
  idempotencyKey?: string | undefined;
}

export interface StartOptions extends Keyed {
  version?: string | undefined;
  labels?: Record<string, string> | undefined;
  /** Start later than now. */
  runAt?: Date | string | undefined;
}

export interface BulkOptions extends Keyed {
  version?: string | undefined;
  labels?: Record<string, string> | undefined;
  /** The labels of each run, in the order of the inputs. */
  runLabels?: (Record<string, string> | null)[] | undefined;
}

export interface CallOptions extends Keyed {
  /** How long the service waits for the answer, in milliseconds; default: 30,000, at most 300,000. */
  timeoutMs?: number | undefined;
  labels?: Record<string, string> | undefined;
}

/** What a workflow has answered to a call. `running`: it has not ended in time and goes on; then there is no body. */
export interface CallAnswer {
  outcome: string;
  runId: string;
  status: number;
  body: string;
}

export interface Limited {
  /** How many items there may be in all; default: all there are. */
  max?: number | undefined;
}

export type Decision = Omit<Schemas["Choice"], "action">;

const PAGE_MAX = 1_000;
const CALL_MS = 30_000;

export class Client {
  private readonly connection: Connection;

  /** `token` is by default the variable SERVICE_API_TOKEN. Throws TypeError for an address that is none. */
  constructor(options: ConnectionOptions = {}) {
    this.connection = new Connection({ ...options, token: options.token ?? process.env.SERVICE_API_TOKEN });
  }

  /** Register a workflow, or replace the one of its name. Throws InvalidError with all problems of the definition. */
  register(definition: types.WorkflowDefinition): Promise<types.Registered> {
    return this.post("/workflows", definition);
  }

  workflow(name: string, options: { version?: string } = {}): Promise<types.WorkflowDefinition> {
    return this.get(path`/workflows/${name}`, options);
  }

  workflows(): Promise<types.WorkflowDefinition[]> {
    return this.get("/workflows");
  }

  versions(name: string): Promise<types.Version[]> {
    return this.get(path`/workflows/${name}/versions`);
  }

  deleteWorkflow(name: string, options: { force?: boolean } = {}): Promise<Schemas["Deleted"]> {
    return this.connection.json("DELETE", path`/workflows/${name}`, { query: options });
  }

  /** Start a run and get a handle at once: `await client.run("order", input).result({ timeoutMs: 60_000 })`. */
  run<Output = unknown>(workflow: string, input?: unknown, options: StartOptions = {}): RunHandle<Output> {
    return new RunHandle(this.connection, this.start(workflow, input, options).then((started) => started.run_id));
  }

  /** The handle of a run that is there. */
  handle<Output = unknown>(runId: string): RunHandle<Output> {
    return new RunHandle(this.connection, runId);
  }

  /** Start a run; `input` is anything that JSON can say, at most 1 MiB. */
  start(workflow: string, input?: unknown, options: StartOptions = {}): Promise<types.StartedRun> {
    const { version, labels, runAt } = options;
    const body = { workflow, input, version, labels, run_at: runAt instanceof Date ? runAt.toISOString() : runAt };
    return this.keyed("/runs", body, options);
  }

  /** Start a run for each input, at most 1,000, all or none. */
  bulk(workflow: string, inputs: readonly unknown[], options: BulkOptions = {}): Promise<types.BulkStarted> {
    const { version, labels, runLabels } = options;
    return this.keyed("/runs/bulk", { workflow_id: workflow, inputs, version, labels, run_labels: runLabels }, options);
  }

  /** Start a run and wait for its answer. A run that fails throws nothing: `outcome` says it, `body` is the error. */
  async call(workflow: string, input?: unknown, options: CallOptions = {}): Promise<CallAnswer> {
    const labels = Object.entries(options.labels ?? {}).map(([key, value]) => `${key}:${value}`);
    const waitMs = options.timeoutMs ?? CALL_MS;
    const request = {
      query: { timeout_ms: waitMs, label: labels },
      headers: { ...key(options), accept: "*/*" },
      body: input ?? null,
      repeatable: true,
      waitMs,
      isAnswer: (answer: Response) => answer.headers.has("penstock-outcome"),
    };
    return this.connection.repeated("POST", path`/workflows/${workflow}/call`, request, answered);
  }

  /** One run with its steps; `waitMs`: as soon as it has ended, at most so much later (60,000). */
  getRun(runId: string, options: { waitMs?: number; at?: number; payloadMax?: number } = {}): Promise<types.Run> {
    const { waitMs, at, payloadMax } = options;
    const query = { wait_ms: waitMs, at, payload_max: payloadMax };
    return this.connection.json("GET", path`/runs/${runId}`, { query, waitMs });
  }

  /** Runs, newest first. */
  runs(filter: types.Filter<"listRuns"> & Limited = {}): AsyncGenerator<types.Run, void, undefined> {
    return this.pages("/runs", filter);
  }

  scheduled(runId: string): Promise<types.ScheduledRun> {
    return this.get(path`/runs/${runId}/scheduled`);
  }

  unschedule(runId: string): Promise<Schemas["Unscheduled"]> {
    return this.connection.json("DELETE", path`/runs/${runId}/scheduled`);
  }

  /** The output of one step, whatever its size. Throws NotFoundError if it has none. */
  async stepOutput<Output = unknown>(runId: string, stepId: string): Promise<Output> {
    return this.get(path`/runs/${runId}/steps/${stepId}/output`);
  }

  async stepInput<Input = unknown>(runId: string, stepId: string): Promise<Input> {
    return this.get(path`/runs/${runId}/steps/${stepId}/input`);
  }

  /** The elements of a map, by number. */
  items(runId: string, stepId: string, filter: types.Filter<"getMapItems"> & Limited = {}): AsyncGenerator<types.MapItem> {
    return this.pages(path`/runs/${runId}/steps/${stepId}/items`, filter);
  }

  /** The history so far, page by page. */
  history(runId: string, filter: types.Filter<"getEvents"> & Limited = {}): AsyncGenerator<types.RunEvent> {
    return this.pages(path`/runs/${runId}/events`, filter);
  }

  /** The run's events, those of the past first, until it has ended. A lost connection is made again. */
  events(runId: string, options: FollowOptions = {}): AsyncGenerator<types.RunEvent, void, undefined> {
    return this.handle(runId).events(options);
  }

  /** The log lines of a run or of one of its steps, those of the past first, until it has ended. */
  logs(runId: string, options: FollowOptions & { step?: string } = {}): AsyncGenerator<types.LogLine> {
    return untilEnd(this.connection, path`/runs/${runId}/logs`, { step: options.step }, "log", options);
  }

  /** What a run or one of its steps streams, from the first chunk on, until it has ended. */
  chunks(runId: string, options: FollowOptions & { step?: string } = {}): AsyncGenerator<types.Chunk> {
    return untilEnd(this.connection, path`/runs/${runId}/stream`, { step: options.step }, "chunk", options);
  }

  /** Why a run does not go on. */
  explain(runId: string): Promise<Schemas["ExplanationView"]> {
    return this.get(path`/runs/${runId}/explain`);
  }

  /** Cancel a run; with `compensate` it undoes its steps first. Throws ConflictError when it has ended. */
  cancel(runId: string, options: { reason?: string; compensate?: boolean } = {}): Promise<types.CancelledRun> {
    return this.post(path`/runs/${runId}/cancel`, options);
  }

  cancelAll(filter: Schemas["CancelRuns"]): Promise<Schemas["BulkCancelled"]> {
    return this.post("/runs/cancel", filter);
  }

  pause(runId: string, options: Partial<Schemas["PauseRun"]> = {}): Promise<types.PausedRun> {
    return this.post(path`/runs/${runId}/pause`, options);
  }

  resume(runId: string, options: Partial<Schemas["PauseRun"]> = {}): Promise<types.PausedRun> {
    return this.post(path`/runs/${runId}/resume`, options);
  }

  /** Have a failed run go on at the step that failed (`replay`, the default), or start it again (`rerun`). */
  retry(runId: string, options: Partial<Schemas["RetryRun"]> = {}): Promise<types.RetriedRun> {
    return this.post(path`/runs/${runId}/retry`, options);
  }

  retryAll(filter: Schemas["RetryRuns"]): Promise<Schemas["Retried"]> {
    return this.post("/runs/retry", filter);
  }

  /** Start a new run of one that has ended; with `from` it takes over what does not depend on that step. */
  rerun(runId: string, body: Schemas["RerunOne"] = {}, options: Keyed = {}): Promise<types.RepeatedRun> {
    return this.keyed(path`/runs/${runId}/rerun`, body, options);
  }

  retryStep(runId: string, stepId: string): Promise<Schemas["RetriedStep"]> {
    return this.post(path`/runs/${runId}/steps/${stepId}/retry`);
  }

  /** Complete a step by hand. */
  skipStep(runId: string, stepId: string, output?: unknown): Promise<Schemas["OverriddenStep"]> {
    return this.post(path`/runs/${runId}/steps/${stepId}/skip`, { output });
  }

  /** Send a signal: bytes as they are, anything else as JSON, at most 1 MiB. */
  signal(runId: string, name: string, payload: unknown = null): Promise<Schemas["Sent"]> {
    return this.post(path`/runs/${runId}/signal/${name}`, payload);
  }

  /** The steps that wait for a decision, oldest first. */
  approvals(filter: types.Filter<"listApprovals"> & Limited = {}): AsyncGenerator<types.WaitingApproval> {
    return this.pages("/approvals", filter);
  }

  approve(runId: string, stepId: string, decision: Decision = {}): Promise<types.Decided> {
    return this.post(path`/approvals/${runId}/${stepId}`, { ...decision, action: "approve" });
  }

  reject(runId: string, stepId: string, decision: Decision = {}): Promise<types.Decided> {
    return this.post(path`/approvals/${runId}/${stepId}`, { ...decision, action: "reject" });
  }

  /** Send an event to event triggers. */
  sendEvent(name: string, payload: unknown = null, options: Keyed = {}): Promise<types.SentEvent> {
    return this.keyed(path`/events/${name}`, payload, options);
  }

  triggers(): Promise<types.Trigger[]> {
    return this.get("/triggers");
  }

  trigger(name: string): Promise<types.Trigger> {
    return this.get(path`/triggers/${name}`);
  }

  createTrigger(document: types.TriggerDocument): Promise<types.Trigger> {
    return this.post("/triggers", document);
  }

  deleteTrigger(name: string): Promise<Schemas["Deleted"]> {
    return this.connection.json("DELETE", path`/triggers/${name}`);
  }

  fireTrigger(name: string, payload?: unknown): Promise<types.FiredRun> {
    return this.post(path`/triggers/${name}/fire`, payload);
  }

  /** Dead letters, newest first. */
  deadLetters(filter: types.Filter<"listDeadLetters"> & Limited = {}): AsyncGenerator<types.DeadLetter> {
    return this.pages("/dead-letters", filter);
  }

  replayDeadLetter(seq: number): Promise<Schemas["Replayed"]> {
    return this.post(path`/dead-letters/${seq}/replay`);
  }

  discardDeadLetter(seq: number): Promise<Schemas["Discarded"]> {
    return this.connection.json("DELETE", path`/dead-letters/${seq}`);
  }

  taskQueues(): Promise<types.TaskQueue[]> {
    return this.get("/tasks");
  }

  workers(): Promise<types.WorkerInfo[]> {
    return this.get("/workers");
  }

  limits(): Promise<types.Limit[]> {
    return this.get("/limits");
  }

  /** Returns once every part of the service is there; throws UnavailableError otherwise. */
  ready(): Promise<Schemas["HealthStatus"]> {
    return this.get("/ready");
  }

  private get<T>(where: string, query: Query = {}): Promise<T> {
    return this.connection.json("GET", where, { query });
  }

  private post<T>(where: string, body?: unknown): Promise<T> {
    return this.connection.json("POST", where, { body });
  }

  private keyed<T>(where: string, body: unknown, options: Keyed): Promise<T> {
    return this.connection.json("POST", where, { body, headers: key(options), repeatable: true });
  }

  private pages<T>(where: string, filter: Limited & object): AsyncGenerator<T, void, undefined> {
    const { max, ...query } = filter;
    const limit = max === undefined ? PAGE_MAX : Math.max(1, Math.min(max, PAGE_MAX));
    return this.connection.pages<T>(where, { ...(query as Query), limit }, max);
  }
}

function key(options: Keyed): Record<string, string> {
  return { "idempotency-key": options.idempotencyKey ?? randomUUID() };
}

async function answered(answer: Response): Promise<CallAnswer> {
  const runId = answer.headers.get("location")?.split("/").pop() ?? "";
  const outcome = answer.headers.get("penstock-outcome") ?? "";
  return { outcome, runId, status: answer.status, body: outcome === "running" ? "" : await answer.text() };
}
