/** Numbers of runs by workflow or trigger: of the last hour, and of each hour of a day. */

import { dayBegins } from "../parts/strip";
import { now } from "../parts/times";
import { usePolled } from "../service/polled";
import { query } from "../service/requests";
import type { RunStats, StatsGroup } from "../service/types";

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
const HOUR_EVERY_MS = 3000;
const DAY_EVERY_MS = 10_000;

export interface Numbers {
  /** By name; those without runs are left out. */
  readonly hour: ReadonlyMap<string, StatsGroup>;
  readonly day: ReadonlyMap<string, StatsGroup>;
  readonly begin: number;
}

export function useNumbers(by: "workflow" | "trigger", only: Record<string, string> = {}): Numbers {
  const minute = Math.floor(now.peek() / MINUTE_MS) * MINUTE_MS;
  const begin = dayBegins(now.peek());
  const lastHour = { ...only, by, durations: true, after: new Date(minute - HOUR_MS).toISOString() };
  const hour = usePolled<RunStats>(`/runs/stats${query(lastHour)}`, HOUR_EVERY_MS);
  const day = usePolled<RunStats>(`/runs/stats${query({ ...only, by, bucket: "1h", after: new Date(begin).toISOString() })}`, DAY_EVERY_MS);
  return { hour: byName(hour.data), day: byName(day.data), begin };
}

const byName = (found: RunStats | null): Map<string, StatsGroup> => new Map((found?.groups ?? []).map((one) => [one.name, one]));

/** How many of the group's runs are in this status. */
export const inStatus = (group: StatsGroup | undefined, status: string): number =>
  (group?.buckets ?? []).reduce((sum, bucket) => sum + (bucket.counts[status] ?? 0), 0);
