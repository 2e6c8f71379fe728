/** Runs by the time of their start and by status, and how far back they were counted. To drag over it chooses a time. */

import { useRef, useState } from "preact/hooks";
import { inUtc, moment } from "../parts/times";
import { count, short } from "../parts/sizes";
import type { Bar, Numbers } from "./numbers";

// From the bottom up.
const STACK = ["failed", "cancelled", "completed", "compensating", "running", "pending", "scheduled"] as const;
const HEIGHT = 56;
const DRAG_PX_MIN = 4;

interface Props {
  numbers: Numbers;
  status: string;
  choose: (from: number, to: number) => void;
  countAll: () => void;
}

interface Drag {
  readonly from: number;
  readonly to: number;
}

export function Histogram({ numbers, status, choose, countAll }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [drag, setDrag] = useState<Drag | null>(null);
  const [over, setOver] = useState<Bar | null>(null);
  const { bars, since } = numbers;
  const most = Math.max(1, ...bars.map((bar) => shownOf(bar, status)));

  const share = (event: PointerEvent): number => {
    const { left, width } = box.current!.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - left) / width));
  };
  const barAt = (at: number): Bar | undefined => bars[Math.min(bars.length - 1, Math.floor(at * bars.length))];

  function begin(event: PointerEvent): void {
    if (event.button !== 0 || bars.length === 0) return;
    box.current!.setPointerCapture(event.pointerId);
    setDrag({ from: share(event), to: share(event) });
  }
  function move(event: PointerEvent): void {
    setOver(barAt(share(event)) ?? null);
    if (drag !== null) setDrag({ ...drag, to: share(event) });
  }
  function end(event: PointerEvent): void {
    if (drag === null) return;
    setDrag(null);
    const [one, other] = [Math.min(drag.from, share(event)), Math.max(drag.from, share(event))];
    const isClick = (other - one) * box.current!.clientWidth < DRAG_PX_MIN;
    const [first, last] = [barAt(one), barAt(other)];
    if (first === undefined || last === undefined || (isClick && first.total === 0 && !isUncounted(first, since))) return;
    choose(first.from, last.to);
  }

  const marked = drag === null ? null : [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
  return (
    <figure class="over-time">
      <div
        ref={box}
        class="over-time-bars"
        role="img"
        aria-label={`${count(numbers.total)}${since === null ? "" : " or more"} runs from ${label(numbers.from)} to ${label(numbers.to)}`}
        onPointerDown={begin}
        onPointerMove={move}
        onPointerUp={end}
        onPointerCancel={() => setDrag(null)}
        onPointerLeave={() => setOver(null)}
      >
        <svg width="100%" height={HEIGHT} aria-hidden="true">
          <pattern id="uncounted" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect class="over-time-hatch" width="2" height="6" />
          </pattern>
          {bars.map((bar, index) => (
            <BarShape key={bar.from} bar={bar} index={index} bars={bars.length} most={most} status={status} marked={bar === over} since={since} />
          ))}
        </svg>
        {marked !== null && <span class="over-time-brush" style={{ left: `${100 * marked[0]!}%`, width: `${100 * (marked[1]! - marked[0]!)}%` }} />}
        {most > 1 && <span class="over-time-most">{short(most)}</span>}
      </div>
      {since !== null && <Uncounted numbers={numbers} since={since} countAll={countAll} />}
      <figcaption class="over-time-axis">
        {over !== null && over.total > 0 ? (
          <span class="over-time-over">
            <strong>{label(over.from)}</strong> {STACK.filter((one) => over.counts[one]).map((one) => `${count(over.counts[one]!)} ${one}`).join(", ")}
          </span>
        ) : (
          <>
            <span>{bars.length > 0 && label(numbers.from)}</span>
            <span class="over-time-hint">drag to choose a time</span>
            <span>{bars.length > 0 && label(numbers.to)}</span>
          </>
        )}
      </figcaption>
    </figure>
  );
}

/** Says how far back the runs were counted, and lets all be counted. */
function Uncounted({ numbers, since, countAll }: Pick<Props, "numbers" | "countAll"> & { since: number }) {
  return (
    <p class="over-time-counted">
      Counted back to {label(since)}.{" "}
      {numbers.isAllAsked ? (
        (numbers.problem ?? "Counting all …")
      ) : (
        <button type="button" class="link" title="Older runs are not in these numbers. To count them may take seconds." onClick={countAll}>
          Count all
        </button>
      )}
    </p>
  );
}

/** Whether there may be runs that are not in the bar. */
const isUncounted = (bar: Bar, since: number | null): boolean => since !== null && bar.from < since;
const label = (ms: number): string => moment(ms, inUtc.value);
const shownOf = (bar: Bar, status: string): number => (status === "" ? bar.total : (bar.counts[status] ?? 0));

interface BarProps {
  bar: Bar;
  index: number;
  bars: number;
  most: number;
  status: string;
  marked: boolean;
  since: number | null;
}

function BarShape({ bar, index, bars, most, status, marked, since }: BarProps) {
  const width = 100 / bars;
  let top = HEIGHT;
  return (
    <g class={marked ? "at-bar" : undefined}>
      {isUncounted(bar, since) && <rect class="over-time-uncounted" fill="url(#uncounted)" x={`${index * width}%`} width={`${width}%`} y="0" height={HEIGHT} />}
      <rect class="over-time-back" x={`${index * width}%`} width={`${width}%`} y="0" height={HEIGHT}>
        {isUncounted(bar, since) && <title>{`Runs before ${label(since!)} are not counted`}</title>}
      </rect>
      {STACK.filter((one) => bar.counts[one] && (status === "" || status === one)).map((one) => {
        // What is there is seen, however few.
        const height = Math.max(2, ((HEIGHT - 4) * bar.counts[one]!) / most);
        top -= height;
        return <rect key={one} class={`h-${one}`} x={`${(index + 0.1) * width}%`} width={`${0.8 * width}%`} y={Math.max(0, top)} height={height} />;
      })}
    </g>
  );
}
