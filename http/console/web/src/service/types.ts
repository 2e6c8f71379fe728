/** The bodies of the API's answers, from its OpenAPI document: scripts/console makes types of it. */

import type { components } from "#api";

type Schemas = components["schemas"];

export type Run = Schemas["RunView"];
export type Step = Schemas["StepView"];
export type RunEvent = Schemas["EventView"];
export type Graph = Schemas["GraphView"];
export type MapItem = Schemas["MapItemView"];
export type RunDiff = Schemas["DiffView"];
export type GraphNode = Schemas["NodeView"];
export type ItemCounts = Schemas["ItemCounts"];
export type Explanation = Schemas["ExplanationView"];
export type WaitingReason = Schemas["WaitingReason"];
export type RunStats = Schemas["RunStats"];
export type RunSummary = Schemas["RunSummary"];
export type Workflow = Schemas["WorkflowDef"];
/** A definition in short, as GET /workflows?summary=true lists them. */
export interface WorkflowSummary {
  readonly name: string;
  readonly version: string;
  readonly steps: number;
  readonly description?: string;
  readonly unserved?: number;
  readonly unserved_task?: string;
}
export const SUMMARIES = "/workflows?summary=true";
export type Session = Schemas["SessionView"];
export type RunStatus = Run["status"];
export type StepStatus = Step["status"];
export type Worker = Schemas["WorkerView"];
export type Trigger = Schemas["TriggerView"];
export type Trial = Schemas["Trial"];
export type Version = Schemas["VersionView"];
export type StatsGroup = Schemas["StatsGroup"];
export type Approval = Schemas["Waiting"];
export type TaskQueue = Schemas["TaskQueue"];
export type Doctor = Schemas["DoctorView"];
export type Broker = Schemas["BrokerView"];
export type Setting = Schemas["SettingView"];
export type Checkpoint = Schemas["CheckpointView"];
export type Health = Schemas["HealthStatus"];
export type TelemetryHealth = Schemas["TelemetryStatus"];
export type AuditEntry = Schemas["AuditView"];
export type ApiKey = Schemas["KeyView"];
export type CreatedKey = Schemas["CreatedKey"];
export type Limit = Schemas["LimitView"];
export type LimitKey = Schemas["LimitKeyView"];
export type LimitOverride = Schemas["LimitOverrideView"];
export type LimitRegistered = Schemas["LimitRegisteredView"];
export type DeadLetter = Schemas["DeadLetterView"];
