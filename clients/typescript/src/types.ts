/** The data of the API by short names. They are generated (api.ts): fields have the names that they have in JSON. */

import type { components, operations } from "./api.js";

type Schemas = components["schemas"];

export type WorkflowDefinition = Schemas["WorkflowDef"];
export type Registered = Schemas["Registered"];
export type Version = Schemas["VersionView"];
export type Run = Schemas["RunView"];
export type Step = Schemas["StepView"];
export type RunEvent = Schemas["EventView"];
export type LogLine = Schemas["LogLineView"];
export type StartedRun = Schemas["StartedRun"];
export type BulkStarted = Schemas["BulkStarted"];
export type ScheduledRun = Schemas["ScheduledRun"];
export type CancelledRun = Schemas["CancelledRun"];
export type PausedRun = Schemas["PausedRun"];
export type RetriedRun = Schemas["RetriedRun"];
export type RepeatedRun = Schemas["RepeatedRun"];
export type WaitingApproval = Schemas["Waiting"];
export type Decided = Schemas["Decided"];
export type MapItem = Schemas["MapItemView"];
export type Trigger = Schemas["TriggerView"];
export type TriggerDocument = Schemas["TriggerDocument"];
export type FiredRun = Schemas["FiredRun"];
export type SentEvent = Schemas["SentEvent"];
export type DeadLetter = Schemas["DeadLetterView"];
export type TaskQueue = Schemas["TaskQueue"];
export type WorkerInfo = Schemas["WorkerView"];
export type Limit = Schemas["LimitView"];
export type PolledTask = Schemas["PolledTask"];
export type TaskAnswer = Schemas["TaskAnswer"];
export type Resolution = Schemas["ResolveTask"];

/** The parameters of a list, without those of its pages. */
export type Filter<Name extends keyof operations> = operations[Name] extends { parameters: { query?: infer Found } }
  ? Omit<NonNullable<Found>, "limit" | "cursor">
  : never;

/** A chunk that a step has streamed. */
export interface Chunk {
  step_id: string;
  attempt: number;
  delivery?: number;
  data: unknown;
}

/** The JSON of what the service has answered to an operation. */
export type Answered<Name extends keyof operations, Status extends number> = operations[Name] extends {
  responses: Record<Status, { content: { "application/json": infer Found } }>;
}
  ? Found
  : never;
