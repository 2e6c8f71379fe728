/** Definitions of workflows as the API returns them, and what is read off them. */

import type { Worker } from "../../service/types";

export interface Retry {
  readonly max_attempts: number;
  readonly strategy?: string | null;
  readonly initial_delay?: string | null;
  readonly max_delay?: string | null;
}

export interface Handler {
  readonly task: string;
  readonly with?: unknown;
  readonly retry?: Retry | null;
  readonly timeout?: string | null;
}

export interface ConcurrencyDefinition {
  readonly limit: number;
  readonly key?: string | null;
  readonly scope?: string | null;
}

export interface RateDefinition extends ConcurrencyDefinition {
  readonly per: string;
  readonly burst?: number | null;
}

/** What holds runs of a workflow back, or executions of a step. */
interface Limited {
  readonly concurrency?: readonly ConcurrencyDefinition[] | null;
  readonly rate_limit?: readonly RateDefinition[] | null;
}

export interface StepDefinition extends Limited {
  readonly id: string;
  readonly type?: string | null;
  readonly task?: string | null;
  readonly name?: string | null;
  readonly description?: string | null;
  readonly depends_on?: readonly string[] | null;
  readonly timeout?: string | null;
  readonly retry?: Retry | null;
  readonly retries?: number | null;
  readonly when?: string | null;
  readonly skip_if?: { step_id: string; field: string; op: string; value: unknown } | null;
  readonly with?: unknown;
  readonly worker_group?: string | null;
  readonly on_failure?: Handler | null;
  readonly compensate?: Handler | null;
  readonly config?: Record<string, unknown> | null;
  readonly metadata?: Record<string, string> | null;
}

export interface Definition extends Limited {
  readonly name: string;
  readonly version?: string | null;
  readonly description?: string | null;
  readonly steps: readonly StepDefinition[];
  readonly timeout?: string | null;
  readonly default_retry?: Retry | null;
  readonly input_schema?: unknown;
  readonly on_failure?: { workflow: string } | null;
  readonly sticky?: string | null;
}

export const kindOf = (step: StepDefinition): string => step.type ?? "normal";

export const versionOf = (definition: Definition): string => definition.version ?? "1";

/** Kinds whose task, if there is one, workers carry out; `http` is carried out by workers, too, as a type of its own. */
const KIND_WORDS: Readonly<Record<string, string>> = {
  normal: "task",
  agent_loop: "agent loop",
  sub_workflow: "workflow",
  wait_for_event: "wait for event",
  http: "HTTP request",
};

export const kindWord = (step: StepDefinition): string => KIND_WORDS[kindOf(step)] ?? kindOf(step).replaceAll("_", " ");

/** What a step does, in a few words: its task, the workflow that it starts, or what it waits for. */
export function purpose(step: StepDefinition): string {
  const config = step.config ?? {};
  const found = step.task ?? config["workflow"] ?? config["duration"] ?? config["until"] ?? config["event"] ?? config["subject"] ?? config["url"] ?? config["description"];
  return typeof found === "string" ? found : "";
}

export function retryText(retry: Retry): string {
  const pause = retry.initial_delay ? `, ${retry.strategy ?? "fixed"} from ${retry.initial_delay}` : "";
  const most = retry.max_delay ? ` to ${retry.max_delay}` : "";
  return `${retry.max_attempts}${pause}${most}`;
}

/** How a step is tried again after a failure: its own policy, or that of its workflow. */
export function retryOf(step: StepDefinition, definition: Definition): Retry | null {
  if (step.retry) return step.retry;
  if (step.retries !== null && step.retries !== undefined) return { max_attempts: step.retries, initial_delay: "5s" };
  return step.task ? (definition.default_retry ?? null) : null;
}

/** Task types, each with the group of workers that it needs, "" for any. */
export function tasksOf(definition: Definition): { task: string; group: string }[] {
  const found = new Map<string, { task: string; group: string }>();
  for (const step of definition.steps) {
    const group = step.worker_group ?? "";
    for (const task of [step.task, step.on_failure?.task, step.compensate?.task]) {
      if (task) found.set(`${group} ${task}`, { task, group });
    }
  }
  return [...found.values()];
}

/** The task types of a definition that no worker serves now. */
export function unserved(definition: Definition, workers: readonly Worker[]): string[] {
  return tasksOf(definition)
    .filter(({ task, group }) => !workers.some((one) => one.task_types.includes(task) && (one.worker_group ?? "") === group))
    .map(({ task }) => task);
}
