/** What a run's events say about the time of each step: a segment for each execution, wait and delay. */

import { instant } from "../../parts/times";
import type { RunEvent } from "../../service/types";

export type SegmentKind = "queued" | "run" | "retry" | "sleep" | "wait" | "approval" | "child" | "map" | "aside";
export type Outcome = "completed" | "failed" | "cancelled" | "lost" | "again" | "by hand";

/** A stretch of time of one step. `to` and `outcome` are null while it lasts; `seq` is the event that began it. */
export interface Segment {
  readonly kind: SegmentKind;
  readonly from: number;
  to: number | null;
  outcome: Outcome | null;
  readonly attempt: number;
  readonly iteration: number;
  readonly worker: string | null;
  readonly seq: number;
  error: string | null;
}

/** What happened to a step at one moment. */
export interface Mark {
  readonly at: number;
  readonly what: "skipped" | "taken over" | "by hand" | "continued";
  readonly seq: number;
}

/** The elements of a map: when each execution of one began, the earliest first; and ended, in the order of the events. */
export interface ElementTimes {
  readonly began: number[];
  readonly ended: number[];
  readonly failed: number[];
}

export interface StepSpans {
  readonly segments: Segment[];
  readonly marks: Mark[];
  elements: ElementTimes | null;
}

export interface Interval {
  readonly from: number;
  to: number | null;
}

interface StartedPayload {
  wake_at?: string;
  event?: string;
  items?: number;
  child_run_id?: string;
}

/** Grows with the run's history: `add` takes its events in order. */
export class Spans {
  readonly steps = new Map<string, StepSpans>();
  readonly pauses: Interval[] = [];
  readonly resumes: number[] = [];
  startedAt: number | null = null;
  endedAt: number | null = null;
  compensatingAt: number | null = null;
  lastAt = 0;
  private readonly running = new Map<string, number>();

  add(event: RunEvent): void {
    const at = typeof event.timestamp === "string" ? instant(event.timestamp) : this.lastAt;
    this.lastAt = Math.max(this.lastAt, at);
    if (event.step_id === undefined) return this.ofRun(event, at);
    if (event.item !== undefined) return this.ofElement(event, at);
    this.ofStep(event, event.step_id, at);
  }

  of(stepId: string): StepSpans {
    let found = this.steps.get(stepId);
    if (found === undefined) {
      found = { segments: [], marks: [], elements: null };
      this.steps.set(stepId, found);
    }
    return found;
  }

  private ofRun(event: RunEvent, at: number): void {
    switch (event.type) {
      case "workflow.started":
        this.startedAt ??= at;
        break;
      case "workflow.paused":
        if (this.pauses.at(-1)?.to !== null) this.pauses.push({ from: at, to: null });
        break;
      case "workflow.unpaused":
        this.endPause(at);
        break;
      case "workflow.resumed":
        this.resumes.push(at);
        this.endedAt = null;
        break;
      case "workflow.compensating":
        this.compensatingAt ??= at;
        break;
      case "workflow.completed":
      case "workflow.failed":
      case "workflow.cancelled":
        this.endedAt ??= at;
        this.endPause(at);
        break;
      case "timer.fired":
        this.ofTimer(event, at);
    }
  }

  private endPause(at: number): void {
    const last = this.pauses.at(-1);
    if (last?.to === null) last.to = at;
  }

  private ofTimer(event: RunEvent, at: number): void {
    const timer = (event.payload as { timer?: string } | undefined)?.timer ?? "";
    const stepId = /^(?:sleep|wait)\.(.+)$/.exec(timer)?.[1];
    if (stepId !== undefined) close(this.steps.get(stepId), at, "completed");
    const again = this.steps.get(/^retry\.(.+)$/.exec(timer)?.[1] ?? "");
    const wait = again?.segments.at(-1);
    if (again === undefined || wait?.kind !== "retry" || wait.to !== null) return;
    wait.to = Math.max(wait.from, at);
    wait.outcome = "again";
    again.segments.push({ ...segment("queued", event, at), attempt: wait.attempt + 1 });
  }

  private ofElement(event: RunEvent, at: number): void {
    const mapId = (event.step_id ?? "").replace(/\.\d+$/, "");
    const spans = this.of(mapId);
    const elements = (spans.elements ??= { began: [], ended: [], failed: [] });
    const key = `${mapId}.${event.item}`;
    const began = beganAt(event, at);
    if (began !== null) {
      if (!this.running.has(key)) insert(elements.began, began);
      this.running.set(key, began);
    }
    if (ENDS.has(event.type) && this.running.delete(key)) {
      elements.ended.push(at);
      if (event.type === "step.failed") elements.failed.push(at);
    }
  }

  private ofStep(event: RunEvent, stepId: string, at: number): void {
    const spans = this.of(stepId);
    const began = beganAt(event, at);
    if (began !== null) start(spans, event, began);
    switch (event.type) {
      case "approval.requested":
        close(spans, at, "again");
        spans.segments.push(segment("approval", event, at));
        return;
      case "step.completed":
      case "approval.granted":
      case "event.received":
        return close(spans, at, "completed");
      case "child.ended": {
        const ended = event.payload as { status?: string; error?: string } | undefined;
        return close(spans, at, ended?.status === "completed" ? "completed" : "failed", ended?.error ?? null);
      }
      case "approval.rejected":
      case "approval.expired":
        return close(spans, at, "failed");
      case "step.continue":
        spans.marks.push({ at, what: "continued", seq: event.seq });
        return close(spans, at, "again");
      case "step.failed":
        close(spans, at, "failed", errorIn(event));
        spans.segments.push(segment("retry", event, at));
        return;
      case "step.paused":
        close(spans, at, "again");
        spans.segments.push(segment("aside", event, at));
        return;
      case "step.skipped":
        spans.marks.push({ at, what: "skipped", seq: event.seq });
        return;
      case "step.taken_over":
        spans.marks.push({ at, what: "taken over", seq: event.seq });
        return;
      case "step.overridden":
        close(spans, at, "by hand");
        spans.marks.push({ at, what: "by hand", seq: event.seq });
    }
  }
}

const ENDS = new Set(["step.completed", "step.failed", "child.ended", "step.continue"]);
const ANSWERS = new Set(["step.completed", "step.failed", "step.continue"]);

/**
 * When the execution began that an event is about; null where another event says that, or none. An answer of a worker
 * may say it in place of a `step.started`; a time that is none, or lies after the answer, is then the answer's.
 */
function beganAt(event: RunEvent, at: number): number | null {
  if (event.type === "step.started") return at;
  if (event.started_at === undefined || !ANSWERS.has(event.type)) return null;
  const began = instant(event.started_at);
  return began < at ? began : at;
}

/** Into numbers of which the smallest is the first; nearly always it is their new last one. */
function insert(sorted: number[], value: number): void {
  let place = sorted.length;
  while (place > 0 && sorted[place - 1]! > value) place -= 1;
  sorted.splice(place, 0, value);
}

function start(spans: StepSpans, event: RunEvent, at: number): void {
  const open = spans.segments.at(-1);
  if (open?.to === null) {
    open.to = Math.max(open.from, at);
    // A second start of the same attempt: the task was delivered again, as its worker was lost.
    open.outcome = open.kind === "run" ? "lost" : "again";
  }
  spans.segments.push(segment(kindOf(event), event, at));
}

function kindOf(event: RunEvent): SegmentKind {
  if (event.worker_id !== undefined || event.started_at !== undefined) return "run";
  const payload = (event.payload ?? {}) as StartedPayload;
  if (payload.wake_at !== undefined) return "sleep";
  if (payload.event !== undefined) return "wait";
  if (payload.items !== undefined) return "map";
  if (payload.child_run_id !== undefined) return "child";
  return "run";
}

function segment(kind: SegmentKind, event: RunEvent, from: number): Segment {
  return {
    kind,
    from,
    to: null,
    outcome: null,
    attempt: event.attempt_number ?? 0,
    iteration: event.iteration ?? 0,
    worker: event.worker_id ?? null,
    seq: event.seq,
    error: null,
  };
}

function close(spans: StepSpans | undefined, at: number, outcome: Outcome, error: string | null = null): void {
  const open = spans?.segments.at(-1);
  if (open === undefined || open.to !== null) return;
  open.to = Math.max(open.from, at); // an event that a step waited for may have come before the step began
  open.outcome = outcome;
  open.error = error;
}

function errorIn(event: RunEvent): string | null {
  const payload = event.payload as { error?: unknown } | undefined;
  return typeof payload?.error === "string" ? payload.error : null;
}
