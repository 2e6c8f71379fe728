/** Which runs the page shows: the filter in its address, and the requests that it leads to. */

import { signal } from "@preact/signals";
import { clockOffsetMs, query } from "../service/requests";

export interface Filter {
  readonly workflow: string;
  readonly status: string;
  readonly labels: readonly string[];
  readonly trigger: string;
  /** The run whose steps have started those that are shown. */
  readonly parent: string;
  readonly text: string;
  /** One of RANGES, or "" where `after` and `before` say it, or nothing does. */
  readonly range: string;
  readonly after: string;
  readonly before: string;
  readonly paused: boolean;
  readonly heldUp: boolean;
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export const RANGES: readonly (readonly [key: string, label: string, ms: number])[] = [
  ["15m", "Last 15 minutes", 15 * MINUTE],
  ["1h", "Last hour", HOUR],
  ["24h", "Last 24 hours", DAY],
  ["7d", "Last 7 days", 7 * DAY],
  ["30d", "Last 30 days", 30 * DAY],
];

export const STATUSES = ["running", "completed", "failed", "cancelled", "scheduled", "compensating", "pending"] as const;

export const PAGE_RUNS = 50;

export function readFilter(params: URLSearchParams): Filter {
  const range = params.get("range") ?? "";
  return {
    workflow: params.get("workflow") ?? "",
    status: params.get("status") ?? "",
    labels: params.getAll("label"),
    trigger: params.get("trigger") ?? "",
    parent: params.get("parent") ?? "",
    text: params.get("q") ?? "",
    range: RANGES.some(([key]) => key === range) ? range : "",
    after: params.get("after") ?? "",
    before: params.get("before") ?? "",
    paused: params.get("paused") === "true",
    heldUp: params.get("held_up") === "true",
  };
}

/** The query of the page's address for a filter. */
export function writeFilter(filter: Filter): string {
  return query({
    workflow: filter.workflow,
    status: filter.status,
    label: filter.labels,
    trigger: filter.trigger,
    parent: filter.parent,
    q: filter.text,
    range: filter.range,
    after: filter.range === "" ? filter.after : "",
    before: filter.range === "" ? filter.before : "",
    paused: filter.paused || null,
    held_up: filter.heldUp || null,
  });
}

export const NO_FILTER = readFilter(new URLSearchParams());
export const isFiltered = (filter: Filter): boolean => writeFilter(filter) !== "";

export const serviceNow = (): number => Date.now() + clockOffsetMs;
export const rfc3339 = (ms: number): string => new Date(ms).toISOString();
export const rangeMs = (filter: Filter): number => RANGES.find(([key]) => key === filter.range)?.[2] ?? 0;

/** The time in which runs were created, as the API takes it; a range that moves begins at `now` minus its width, or a
 *  little before, so that all who look at the same time ask the same. */
export function timesOf(filter: Filter, now: number): { after: string; before: string } {
  const width = rangeMs(filter);
  const step = Math.max(10_000, width / 100);
  return width > 0 ? { after: rfc3339(Math.floor((now - width) / step) * step), before: "" } : { after: filter.after, before: filter.before };
}

/** The parameters that lists and numbers of runs share. */
export function apiParams(filter: Filter, times: { after: string; before: string }, { status = true } = {}): Parameters<typeof query>[0] {
  return {
    workflow: filter.workflow,
    status: status ? filter.status : "",
    label: filter.labels,
    trigger: filter.trigger,
    parent: filter.parent,
    q: filter.text,
    after: times.after,
    before: times.before,
    paused: filter.paused || null,
  };
}

/** The command line's options of a filter. */
export function cliOptions(filter: Filter, times: { after: string; before: string }): [name: string, value: string][] {
  const given: [string, string][] = [
    ["--workflow", filter.workflow],
    ...filter.labels.map((label): [string, string] => ["--label", label.replace(":", "=")]),
    ["--after", times.after],
    ["--before", times.before],
    ["--trigger", filter.trigger],
    ["--parent", filter.parent],
    ["--q", filter.text],
  ];
  return given.filter(([, value]) => value !== "");
}

/** The rows that are selected, by run id. */
export const selected = signal<ReadonlySet<string>>(new Set());
