/** The graph of a run and its waterfall on the same rows. */

import { useSignal, type Signal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { StatusIcon } from "../parts/status";
import { count } from "../parts/sizes";
import { duration, now } from "../parts/times";
import { VirtualRows } from "../parts/virtual";
import { useKeys } from "../shell/keys";
import type { Graph, Run } from "../service/types";
import { Bars, barsWidth, percent } from "./bars";
import { Lines, linesWidth, ROW_HEIGHT } from "./lines";
import type { Scale } from "./model/scale";
import type { Spans } from "./model/spans";
import { axis, hasIdleTime, tracksFor, rowsOf, type Row } from "./rows";

export interface View {
  /** The part of time that is zoomed into, in ms since 1970. */
  readonly zoom: Signal<readonly [number, number] | null>;
  readonly folding: Signal<boolean>;
  /** The step that is open at the side, and the one that the pointer is on. */
  readonly chosen: Signal<string | null>;
  readonly marked: Signal<string | null>;
}

interface Props {
  run: Run;
  graph: Graph;
  spans: Spans;
  /** Changes whenever the spans have grown. */
  grown: number;
  /** A moment of the past that the page shows; null: now. */
  until: number | null;
  view: View;
  /** The steps that differ from those of another run, where one is compared. */
  differing: ReadonlySet<string>;
  choose: (stepId: string | null) => void;
}

export function Timeline({ run, graph, spans, grown, until, view, differing, choose }: Props) {
  const tracks = useMemo(() => tracksFor(graph), [graph]);
  const rows = useMemo(() => rowsOf(run, graph, tracks, spans), [run, graph, tracks, spans, grown]);
  const isOver = spans.endedAt !== null;
  const end = until ?? (isOver ? spans.endedAt! : now.value);
  const scale = useMemo(() => axis(spans, end, view.zoom.value, view.folding.value), [spans, grown, end, view.zoom.value, view.folding.value]);
  const foldable = useMemo(() => hasIdleTime(spans, end), [spans, grown, Math.round(end / 1000)]);
  const width = linesWidth(tracks);
  useRowKeys(rows, view, choose);
  return (
    <section class="timeline" aria-label="Steps" style={{ "--lines": `${width}px` }}>
      <Axis scale={scale} view={view} foldable={view.folding.value || foldable} />
      {run.status === "failed" && <Tie rows={rows} />}
      <div class="plot">
        <Backdrop scale={scale} spans={spans} until={end} isOver={isOver} />
        <VirtualRows count={rows.length} rowHeight={ROW_HEIGHT} class="rows">
          {(first, last) => (
            <>
              <Lines tracks={tracks} rows={rows} first={first} last={last} marked={view.marked.value ?? view.chosen.value} />
              {rows.slice(first, last).map((row) => (
                <StepRow key={row.id} row={row} scale={scale} until={until ?? spans.endedAt} view={view} differs={differing.has(row.id)} choose={choose} />
              ))}
            </>
          )}
        </VirtualRows>
      </div>
    </section>
  );
}

/** `j` and `k` go to the next step and the one before. */
function useRowKeys(rows: readonly Row[], view: View, choose: Props["choose"]): void {
  function move(by: number): void {
    const at = rows.findIndex((row) => row.id === view.chosen.peek());
    const row = rows[at < 0 ? 0 : at + by];
    if (row !== undefined) choose(row.id);
  }
  useKeys([
    { key: "j", label: "Next step", act: () => move(1) },
    { key: "k", label: "Step before", act: () => move(-1) },
  ]);
}

/** The line from the error above the steps to the row of the one that failed. */
function Tie({ rows }: { rows: readonly Row[] }) {
  const at = rows.findIndex((row) => row.step.status === "failed" && row.step.error);
  return at < 0 ? null : <span class="tie" style={{ height: `${TIE_TOP + at * ROW_HEIGHT + ROW_HEIGHT / 2}px` }} aria-hidden="true" />;
}

/** From the banner to the first row: the space between, and the axis. */
const TIE_TOP = 12 + 28;

interface RowProps {
  row: Row;
  scale: Scale;
  until: number | null;
  view: View;
  differs: boolean;
  choose: Props["choose"];
}

function StepRow({ row, scale, until, view, differs, choose }: RowProps) {
  const chosen = view.chosen.value === row.id;
  const names = ["row"];
  if (chosen) names.push("chosen");
  if (view.marked.value === row.id) names.push("marked");
  if (row.parent !== null) names.push("inner");
  if (row.planned !== null) names.push("planned", ...row.planned);
  if (row.step.status === "failed") names.push("failed");
  return (
    <div class={names.join(" ")} data-step={row.id} onMouseEnter={() => (view.marked.value = row.id)} onMouseLeave={() => (view.marked.value = null)}>
      <button type="button" class="row-name" aria-pressed={chosen} onClick={() => choose(chosen ? null : row.id)} title={row.id}>
        <StatusIcon status={row.step.status} />
        <span class="row-label">{row.label}</span>
        {differs && (
          <span class="badge warn" title="differs from the other run">
            differs
          </span>
        )}
        <Badges row={row} />
      </button>
      <div class="row-bars" onClick={() => choose(row.id)}>
        <Bars row={row} scale={scale} until={until} />
      </div>
    </div>
  );
}

const KINDS: Record<string, string> = {
  agent_loop: "loop",
  approval: "approval",
  sleep: "sleep",
  map: "map",
  sub_workflow: "child",
  http: "http",
  respond: "respond",
  wait_for_event: "event",
  planner: "planner",
};

/** In the order of their worth, from the right: those for which there is no room are left out. */
function Badges({ row }: { row: Row }) {
  const { step, node } = row;
  const items = step.items;
  return (
    <span class="badges">
      {items !== undefined && (
        <span class={`badge${items.failed > 0 ? " bad" : ""}`}>
          {count(items.completed)}/{count(items.total)}
          {items.failed > 0 && ` · ${count(items.failed)} failed`}
        </span>
      )}
      {step.attempts > 1 && <span class="badge warn" title={`${step.attempts} attempts`}>×{step.attempts}</span>}
      {(step.iteration ?? 0) > 0 && <span class="badge">↻{step.iteration}</span>}
      {step.overridden && <span class="badge warn">by hand</span>}
      {step.progress !== undefined && step.progress.total ? (
        <span class="badge">{Math.round((100 * step.progress.done) / step.progress.total)} %</span>
      ) : null}
      {KINDS[node.type] !== undefined && <span class="badge">{KINDS[node.type]}</span>}
    </span>
  );
}

const TICK_WIDTH = 110;

const LABEL_WIDTH = 48;

/** How many labels the axis has room for. */
const tickCount = (): number => Math.max(2, Math.round(barsWidth() / TICK_WIDTH));

/** Hours, seconds, …: dragging over them zooms in. */
function Axis({ scale, view, foldable }: { scale: Scale; view: View; foldable: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const brush = useSignal<readonly [number, number] | null>(null);
  const share = (event: PointerEvent): number => {
    const rect = box.current!.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - rect.left) / rect.width));
  };
  function begin(event: PointerEvent): void {
    box.current!.setPointerCapture(event.pointerId);
    brush.value = [share(event), share(event)];
  }
  function move(event: PointerEvent): void {
    if (brush.value !== null) brush.value = [brush.value[0], share(event)];
  }
  function end(): void {
    if (brush.value === null) return;
    const [a, b] = [Math.min(...brush.value), Math.max(...brush.value)];
    brush.value = null;
    if (b - a > 0.01) view.zoom.value = [scale.at(a), scale.at(b)];
  }
  return (
    <div class="axis">
      <div class="axis-tools">
        <span class="axis-title">Steps</span>
        {foldable && (
          <button type="button" class="tool" aria-pressed={view.folding.value} title="Leave out time in which nothing ran" onClick={() => (view.folding.value = !view.folding.value)}>
            fold idle
          </button>
        )}
        {view.zoom.value !== null && (
          <button type="button" class="tool" onClick={() => (view.zoom.value = null)}>
            whole run
          </button>
        )}
      </div>
      <div ref={box} class="axis-ticks" title="Drag to zoom, double-click for the whole run" onPointerDown={begin} onPointerMove={move} onPointerUp={end} onPointerCancel={() => (brush.value = null)} onDblClick={() => (view.zoom.value = null)}>
        {scale.ticks(tickCount()).filter((tick) => (1 - tick.x) * barsWidth() > LABEL_WIDTH).map((tick) => (
          <span key={tick.at} class="tick" style={{ left: percent(tick.x) }}>
            {tick.offset === 0 ? "0" : `+${duration(tick.offset)}`}
          </span>
        ))}
        {brush.value !== null && <span class="brush" style={{ left: percent(Math.min(...brush.value)), width: percent(Math.abs(brush.value[1] - brush.value[0])) }} />}
      </div>
    </div>
  );
}

/** What lies behind all rows: lines of the axis, pauses, folded time, and now. */
function Backdrop({ scale, spans, until, isOver }: { scale: Scale; spans: Spans; until: number; isOver: boolean }) {
  return (
    <div class="backdrop" aria-hidden="true">
      {scale.ticks(tickCount()).map((tick) => (
        <span key={tick.at} class="grid" style={{ left: percent(tick.x) }} />
      ))}
      {scale.folds.map((fold) => (
        <span key={fold.from} class="fold" style={{ left: percent(scale.x(fold.from)), width: percent(scale.x(fold.to) - scale.x(fold.from)) }} title={`${duration(fold.to - fold.from)} without work`} />
      ))}
      {spans.pauses.map((pause) => {
        const [left, right] = [Math.max(0, scale.x(pause.from)), Math.min(1, scale.x(pause.to ?? until))];
        return right > left ? <span key={pause.from} class="pause" style={{ left: percent(left), width: percent(right - left) }} title="paused" /> : null;
      })}
      {!isOver && <span class="now" style={{ left: percent(Math.max(0, Math.min(1, scale.x(until)))) }} />}
    </div>
  );
}
