/** How many runs match, by status and time: what the histogram and the facets show. */

import { useMemo } from "preact/hooks";
import { computed, signal } from "@preact/signals";
import { instant, now } from "../parts/times";
import { usePolled } from "../service/polled";
import { query } from "../service/requests";
import type { RunStats } from "../service/types";
import { apiParams, rangeMs, rfc3339, timesOf, writeFilter, type Filter } from "./filter";

const BARS = 72;
const SECOND = 1000;
const WIDTHS_S = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_592_000];
const WITHIN_MS = 60; // so long the service counts before somebody asks for all
const EVERY_MS = 5000;
const OLDEST_EVERY_MS = 60_000;
const LEAST_MS = 60 * SECOND;

export interface Bar {
  readonly from: number;
  readonly to: number;
  readonly counts: Record<string, number>;
  readonly total: number;
}

export interface Numbers {
  /** Of all statuses, whichever the filter asks for. */
  readonly byStatus: Record<string, number>;
  readonly total: number;
  readonly bars: readonly Bar[];
  readonly from: number;
  readonly to: number;
  /** Runs that were created before have not all been counted; null: all have. */
  readonly since: number | null;
  /** Whether somebody has asked for all, and why there is no answer. */
  readonly isAllAsked: boolean;
  readonly problem: string | null;
}

/** The filter of which all runs are counted, however long it takes. */
const countedWhole = signal<string | null>(null);

const keyOf = (filter: Filter): string => writeFilter({ ...filter, status: "", heldUp: false });

export const countAll = (filter: Filter): void => void (countedWhole.value = keyOf(filter));

/** Since when the runs of an answer have been counted; null: all of them. */
export const countedSince = (stats: RunStats): number | null => (stats.complete === false ? instant(stats.since!) : null);

/** For how long the service may count what is shown by the way. */
export const inShort = { within_ms: WITHIN_MS };

/** The numbers of a filter; null until they are there. */
export function useNumbers(filter: Filter): Numbers | null {
  const key = keyOf(filter);
  const isAllAsked = countedWhole.value === key;
  const all = { ...apiParams(filter, timesOf({ ...filter, range: "" }, 0), { status: false }), ...(isAllAsked ? {} : inShort) };
  const isBounded = filter.after !== "" || rangeMs(filter) > 0;
  const oldest = usePolled<RunStats>(isBounded ? null : `/runs/stats${query(all)}`, OLDEST_EVERY_MS);
  const oldestAt = oldest.data?.buckets[0]?.at ?? oldest.data?.since ?? null;
  const begin = isBounded || oldestAt === null ? null : instant(oldestAt);
  // Moves with the clock, a bucket at a time, and no oftener than numbers are asked for.
  const span = useMemo(() => computed(() => spanOf(filter, begin, Math.ceil(now.value / EVERY_MS) * EVERY_MS)), [key, begin]).value;
  const given = { ...all, after: span === null ? "" : rfc3339(span.from), bucket: span === null ? "" : `${span.width / SECOND}s` };
  const found = usePolled<RunStats>(span === null ? null : `/runs/stats${query(given)}`, EVERY_MS);
  if (!isBounded && oldest.data !== null && oldest.data.total === 0 && oldestAt === null && found.data === null) return NOTHING;
  if (span === null || found.data === null) return null;
  return { ...numbers(found.data, span), isAllAsked, problem: found.problem?.message ?? null };
}

const NOTHING: Numbers = { byStatus: {}, total: 0, bars: [], from: 0, to: 0, since: null, isAllAsked: false, problem: null };

interface Span {
  readonly from: number;
  readonly to: number;
  readonly width: number;
}

let last: Span | null = null;

function spanOf(filter: Filter, begin: number | null, at: number): Span | null {
  const range = rangeMs(filter);
  const end = range === 0 && filter.before !== "" ? instant(filter.before) : at;
  const from = range > 0 ? at - range : filter.after !== "" ? instant(filter.after) : begin;
  if (from === null) return null;
  const length = Math.max(end - from, LEAST_MS);
  const width = SECOND * (WIDTHS_S.find((one) => (length / one) * (1 / SECOND) <= BARS) ?? WIDTHS_S.at(-1)!);
  const found = { from: Math.floor((end - length) / width) * width, to: Math.ceil(end / width) * width, width };
  // The same value again, so that nothing is asked for anew.
  if (last !== null && last.from === found.from && last.to === found.to && last.width === found.width) return last;
  return (last = found);
}

function numbers(stats: RunStats, span: Span): Omit<Numbers, "isAllAsked" | "problem"> {
  const found = new Map(stats.buckets.map((one) => [instant(one.at), one.counts]));
  const bars: Bar[] = [];
  const byStatus: Record<string, number> = {};
  for (let from = span.from; from < span.to; from += span.width) {
    const counts = found.get(from) ?? {};
    bars.push({ from, to: from + span.width, counts, total: sum(counts) });
  }
  for (const { counts } of stats.buckets) for (const [status, number] of Object.entries(counts)) byStatus[status] = (byStatus[status] ?? 0) + number;
  return { byStatus, total: stats.total, bars, from: span.from, to: span.to, since: countedSince(stats) };
}

const sum = (counts: Record<string, number>): number => Object.values(counts).reduce((total, one) => total + one, 0);
