/** The rows of the run page: a step each, with what the graph and the waterfall show of it. */

import { instant } from "../parts/times";
import type { Graph, GraphNode, Run, Step } from "../service/types";
import { criticalPath } from "./model/critical";
import { tracksOf, type Tracks } from "./model/tracks";
import { idle, Scale, type Fold } from "./model/scale";
import type { Segment, Spans, StepSpans } from "./model/spans";

export interface Row {
  readonly id: string;
  /** The id without that of the planner, or of the step whose failure it handles. */
  readonly label: string;
  readonly node: GraphNode;
  readonly step: Step;
  readonly spans: StepSpans;
  /** When it could begin, as all that it waits for had ended; null before. */
  readonly ready: number | null;
  /** The ids of the planners, or handled steps, that it belongs to. */
  readonly parent: string | null;
  readonly critical: boolean;
  /** Of a step in a planner's plan: whether its row is the first or last of them; null of others. */
  readonly planned: readonly ("first" | "last")[] | null;
}

const NOTHING: StepSpans = { segments: [], marks: [], elements: null };

export function rowsOf(run: Run, graph: Graph, tracks: Tracks, spans: Spans): Row[] {
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const critical = criticalPath(run.steps, tracks.before);
  const begun = spans.startedAt ?? instant(run.started_at ?? run.created_at);
  const rows = tracks.order.flatMap((id) => {
    const node = nodes.get(id);
    const step = run.steps[id];
    if (node === undefined || step === undefined) return [];
    const parent = node.handles ?? planner(id, nodes);
    return [
      {
        id,
        label: parent !== null && id.startsWith(`${parent}.`) ? id.slice(parent.length + 1) : id,
        node,
        step,
        spans: spans.steps.get(id) ?? NOTHING,
        ready: node.type === "compensate" ? spans.compensatingAt : readyAt(tracks.before.get(id) ?? [], run, begun),
        parent,
        critical: critical.has(id),
        planned: null,
      },
    ];
  });
  return framed(rows, nodes);
}

/** Rows of one plan that follow each other are framed. */
function framed(rows: readonly Row[], nodes: ReadonlyMap<string, GraphNode>): Row[] {
  const plan = (index: number): string | null => {
    const parent = rows[index]?.parent ?? null;
    return parent !== null && nodes.get(parent)?.type === "planner" ? parent : null;
  };
  return rows.map((row, index) => {
    const own = plan(index);
    if (own === null) return row;
    const planned: ("first" | "last")[] = [];
    if (plan(index - 1) !== own) planned.push("first");
    if (plan(index + 1) !== own) planned.push("last");
    return { ...row, planned };
  });
}

export const tracksFor = (graph: Graph): Tracks => tracksOf(graph.nodes, graph.edges);

function planner(id: string, nodes: ReadonlyMap<string, GraphNode>): string | null {
  for (let dot = id.lastIndexOf("."); dot > 0; dot = id.lastIndexOf(".", dot - 1)) {
    const before = id.slice(0, dot);
    if (nodes.get(before)?.type === "planner") return before;
  }
  return null;
}

const DONE = new Set(["completed", "skipped", "recovered"]);

function readyAt(before: readonly string[], run: Run, begun: number): number | null {
  let at = begun;
  for (const id of before) {
    const step = run.steps[id];
    if (step === undefined || (!DONE.has(step.status) && step.status !== "failed")) return null;
    if (step.finished_at) at = Math.max(at, instant(step.finished_at));
  }
  return at;
}

/** When a step could begin, as all that it waits for had ended; null before. */
export function readyOf(stepId: string, run: Run, tracks: Tracks, spans: Spans): number | null {
  return readyAt(tracks.before.get(stepId) ?? [], run, spans.startedAt ?? instant(run.started_at ?? run.created_at));
}

/** From when to when the axis goes, at the moment `until`. */
export function axis(spans: Spans, until: number, zoom: readonly [number, number] | null, fold: boolean): Scale {
  const from = spans.startedAt ?? until;
  const to = Math.max(from + 10, spans.endedAt ?? until);
  if (zoom !== null) return new Scale(zoom[0], zoom[1], fold ? folds(spans, from, to, until) : []);
  const room = spans.endedAt === null ? (to - from) * 0.04 : (to - from) * 0.005;
  return new Scale(from, to + room, fold ? folds(spans, from, to, until) : []);
}

/** Whether there is time to fold up to the moment `until`. */
export function hasIdleTime(spans: Spans, until: number): boolean {
  const from = spans.startedAt ?? until;
  return folds(spans, from, Math.max(from + 10, spans.endedAt ?? until), until).length > 0;
}

const WORK = new Set<Segment["kind"]>(["run", "queued", "map"]);

function folds(spans: Spans, from: number, to: number, until: number): Fold[] {
  const busy = [];
  for (const step of spans.steps.values()) {
    for (const one of step.segments) {
      if (WORK.has(one.kind)) busy.push({ from: one.from, to: one.to ?? until });
    }
  }
  return idle(busy, from, to);
}
