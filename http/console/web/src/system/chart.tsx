/** A small chart of a few lines over the time that the page is open. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { inUtc, moment } from "../parts/times";

export interface Line {
  readonly label: string;
  /** A colour of tokens.css. */
  readonly color: string;
  readonly values: readonly number[];
  readonly dashed?: boolean;
}

interface Props {
  title: string;
  times: readonly number[];
  lines: readonly Line[];
  format: (value: number) => string;
}

const HEIGHT = 110;
const SPAN_S_MIN = 60;

export function Chart({ title, times, lines, format }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data = [times, ...lines.map((line) => line.values)] as unknown as uPlot.AlignedData;

  useEffect(() => {
    const element = box.current!;
    function draw(): void {
      plot.current?.destroy();
      plot.current = new uPlot(options(element, lines), plot.current?.data ?? data, element);
    }
    draw();
    const sizes = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    sizes.observe(element);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", draw);
    const chosen = new MutationObserver(draw);
    chosen.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      sizes.disconnect();
      theme.removeEventListener("change", draw);
      chosen.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);

  useEffect(() => plot.current?.setData(data), [times.length, times.at(-1)]);

  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{title}</span>
        {lines.map((line) => (
          <span key={line.label} class="chart-key">
            <svg width="12" height="8" aria-hidden="true">
              <line x1="0" y1="4" x2="12" y2="4" stroke={`var(--${line.color})`} stroke-width="2" stroke-dasharray={line.dashed ? "3 2" : undefined} />
            </svg>
            {line.label} <strong class="number">{line.values.length === 0 ? "–" : format(line.values.at(-1)!)}</strong>
          </span>
        ))}
      </figcaption>
      <div ref={box} class="chart-plot" aria-hidden="true" />
    </figure>
  );
}

/** At least a minute, up to the last sample; up to now before the first one. */
function span(first: number | null, last: number | null): [number, number] {
  const now = Date.now() / 1000;
  const end = Math.min(last ?? now, now); // of a single sample, uPlot makes years
  return [Math.min(first ?? end, end - SPAN_S_MIN), end];
}

function options(element: HTMLElement, lines: readonly Line[]): uPlot.Options {
  const axis = { stroke: color(element, "text-3"), grid: { stroke: color(element, "edge"), width: 1 }, ticks: { show: false }, font: "11px Inter" };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    padding: [8, 24, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { range: (_, first, last) => span(first, last) }, y: { range: (_, __, most) => [0, Math.max(1, (most ?? 0) * 1.1)] } },
    axes: [
      { ...axis, size: 22, space: 90, values: (_, splits) => splits.map((at) => moment(at * 1000, inUtc.peek())) },
      { ...axis, size: 44, space: 28 },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: color(element, line.color),
        width: 1.5,
        points: { show: false },
        ...(line.dashed ? { dash: [4, 3] } : {}),
      })),
    ],
  };
}

/** What the canvas can draw with: the colour that a token has now. */
function color(element: HTMLElement, token: string): string {
  element.style.color = `var(--${token})`;
  const found = getComputedStyle(element).color;
  element.style.color = "";
  return found;
}
