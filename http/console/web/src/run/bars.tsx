/** What a step did in time, as bars of the waterfall. */

import { duration, now } from "../parts/times";
import type { Scale } from "./model/scale";
import type { ElementTimes, Segment } from "./model/spans";
import type { Row } from "./rows";

const WIDTH_MIN = 0.002;
const LABEL_WIDTH = 12;
const TOTAL_WIDTH = 62;

/** About how wide the place for bars is, in pixels: what stands in it is left out where there is no room. */
export const barsWidth = (): number => Math.max(120, innerWidth - (innerWidth < 720 ? 176 : innerWidth < 1100 ? 430 : 520));

interface Bar {
  readonly kind: string;
  readonly from: number;
  readonly to: number;
  readonly title: string;
  readonly label: string;
}

interface Props {
  row: Row;
  scale: Scale;
  /** The time up to which open bars go; null: now. */
  until: number | null;
}

export function Bars({ row, scale, until }: Props) {
  const isOpen = row.spans.segments.at(-1)?.to === null || (row.ready !== null && row.step.status === "queued");
  const end = until ?? (isOpen ? now.value : now.peek());
  const bars = barsOf(row, end);
  return (
    <div class="bars">
      {bars.map((bar, index) => (
        <Stretch key={index} bar={bar} scale={scale} />
      ))}
      {row.spans.elements !== null && <Density times={row.spans.elements} total={row.step.items?.total ?? 0} scale={scale} until={end} />}
      {row.spans.marks.map((mark) => {
        const x = scale.x(mark.at);
        return x < 0 || x > 1 ? null : <span key={mark.seq} class={`mark m-${mark.what.replace(" ", "-")}`} style={{ left: percent(x) }} title={mark.what} />;
      })}
      <Total bars={bars} scale={scale} />
    </div>
  );
}

function Stretch({ bar, scale }: { bar: Bar; scale: Scale }) {
  const left = scale.x(bar.from);
  const right = scale.x(bar.to);
  if (right < 0 || left > 1) return null;
  const [begin, end] = [Math.max(-0.01, left), Math.min(1.01, right)];
  const style = { left: percent(begin), width: percent(Math.max(WIDTH_MIN, end - begin)) };
  return (
    <span class={`bar b-${bar.kind}`} style={style} title={bar.title}>
      {bar.label !== "" && (end - begin) * barsWidth() > LABEL_WIDTH && <span class="bar-label">{bar.label}</span>}
    </span>
  );
}

/** How long the step took, behind its last bar, or before its first where there is no room. */
function Total({ bars, scale }: { bars: readonly Bar[]; scale: Scale }) {
  const worked = bars.filter((bar) => bar.kind !== "queued");
  const [first, last] = [worked[0], worked.at(-1)];
  if (first === undefined || last === undefined) return null;
  const text = duration(last.to - first.from);
  const [left, right] = [scale.x(bars[0]!.from), scale.x(last.to)]; // before what it was queued for, too
  if (right < 0 || scale.x(first.from) > 1) return null;
  const room = TOTAL_WIDTH / barsWidth();
  if (right < 1 - room) return <span class="bar-total" style={{ left: percent(Math.max(0, right)) }}>{text}</span>;
  if (left > room) return <span class="bar-total" style={{ right: percent(1 - Math.min(1, left)) }}>{text}</span>;
  return <span class="bar-total within" style={{ right: percent(1 - Math.min(1, right)) }}>{text}</span>;
}

function barsOf(row: Row, end: number): Bar[] {
  const found: Bar[] = [];
  const { segments } = row.spans;
  const first = segments[0];
  const queuedTo = first?.from ?? (row.step.status === "queued" ? end : null);
  if (row.ready !== null && queuedTo !== null && queuedTo > row.ready) {
    found.push({ kind: "queued", from: row.ready, to: queuedTo, title: `queued for ${duration(queuedTo - row.ready)}`, label: "" });
  }
  const over = ["completed", "failed", "cancelled", "skipped", "recovered"].includes(row.step.status);
  for (const one of segments) {
    const isLast = one === segments.at(-1);
    // What no event ends is over with its step: the delay that a last attempt does not have, and what a cancellation ends.
    if (one.to === null && over && (one.kind === "retry" || one.kind === "queued") && isLast) continue;
    found.push(barOf(one, one.to ?? (over ? endOf(row, end) : end), segments.length > 1, over ? row.step.status : null));
  }
  return found;
}

function endOf(row: Row, end: number): number {
  return row.step.finished_at ? Date.parse(row.step.finished_at) : end;
}

function barOf(one: Segment, to: number, several: boolean, ended: string | null): Bar {
  const took = duration(to - one.from);
  const number = one.iteration > 0 ? `iteration ${one.iteration + 1}` : `attempt ${one.attempt}`;
  const outcome = one.outcome ?? ended ?? (one.to === null ? "now" : "");
  const kind = KIND[one.kind] ?? "run";
  const state = one.kind === "run" || one.kind === "child" || one.kind === "map" ? (outcome === "now" || outcome === "" ? "running" : outcome) : kind;
  const worker = one.worker === null ? "" : `, worker ${one.worker}`;
  const error = one.error === null ? "" : `\n${one.error.slice(0, 300)}`;
  const label = several && one.kind === "run" ? String(one.iteration > 0 ? one.iteration + 1 : one.attempt) : "";
  return {
    kind: one.kind === "run" || one.kind === "child" || one.kind === "map" ? `${one.kind} o-${state.replace(" ", "-")}` : kind,
    from: one.from,
    to,
    title: `${TITLE[one.kind]} ${one.kind === "run" ? `${number}: ${outcome === "now" ? "running" : outcome} ` : ""}${took}${worker}${error}`,
    label,
  };
}

const KIND: Record<string, string> = { queued: "queued", retry: "retry", sleep: "sleep", wait: "wait", approval: "wait", aside: "retry" };

const TITLE: Record<Segment["kind"], string> = {
  queued: "queued",
  run: "",
  retry: "waits for the next attempt",
  sleep: "sleeps",
  wait: "waits for an event",
  approval: "waits for a decision",
  child: "child run",
  map: "map",
  aside: "put aside by its worker",
};

const BINS = 120;

/** How many elements of a map ran at each time, and where some failed. */
function Density({ times, total, scale, until }: { times: ElementTimes; total: number; scale: Scale; until: number }) {
  const first = times.began[0];
  if (first === undefined) return null;
  const last = times.ended.length >= total && total > 0 ? (times.ended.at(-1) ?? until) : until;
  const left = Math.max(0, scale.x(first));
  const right = Math.min(1, scale.x(last));
  if (right <= left) return null;
  const { running, failed, peak } = bins(times, scale, left, right);
  const path = running.map((value, bin) => `${bin === 0 ? "M0" : `H${bin}`} V${(20 - (18 * value) / peak).toFixed(1)}`).join("");
  return (
    <svg class="density" viewBox={`0 0 ${BINS} 20`} preserveAspectRatio="none" style={{ left: percent(left), width: percent(right - left) }} role="img" aria-label={`${times.ended.length} of ${total} elements ended, ${times.failed.length} failed`}>
      <path class="density-running" d={`M0 20 ${path.replace("M0 ", "L0 20")} H${BINS} V20Z`} />
      {failed.map((value, bin) => (value > 0 ? <rect key={bin} class="density-failed" x={bin} y="14" width="1.4" height="6" /> : null))}
    </svg>
  );
}

function bins(times: ElementTimes, scale: Scale, left: number, right: number) {
  const running = new Array<number>(BINS).fill(0);
  const failed = new Array<number>(BINS).fill(0);
  const bin = (at: number) => Math.max(0, Math.min(BINS - 1, Math.floor(((scale.x(at) - left) / (right - left)) * BINS)));
  const change = new Array<number>(BINS + 1).fill(0);
  for (const at of times.began) change[bin(at)]! += 1;
  for (const at of times.ended) change[bin(at) + 1]! -= 1;
  for (const at of times.failed) failed[bin(at)]! += 1;
  let sum = 0;
  for (let index = 0; index < BINS; index += 1) {
    sum += change[index]!;
    running[index] = Math.max(0, sum);
  }
  return { running, failed, peak: Math.max(1, ...running) };
}

export const percent = (x: number): string => `${(x * 100).toFixed(3)}%`;
