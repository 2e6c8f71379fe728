/** How many tasks were carried out a minute, by type, while the page was open. */

import type { Reading, Sample } from "../system/metrics";

const OVER_S = 60;
const ENDS: ReadonlySet<string> = new Set(["completed", "failed", "continued"]);

/** Ended tasks a minute by task type, over the last minute or as long as there are readings; null with only one. */
export function perMinute(readings: readonly Reading[]): ReadonlyMap<string, number> | null {
  const last = readings.at(-1);
  const first = last && (readings.find((one) => last.at - one.at <= OVER_S) ?? readings[0]);
  if (!last || !first || first === last) return null;
  const before = new Map(ended(first).map((one) => [JSON.stringify(one.labels), one.value]));
  const found = new Map<string, number>();
  for (const one of ended(last)) {
    const grown = Math.max(0, one.value - (before.get(JSON.stringify(one.labels)) ?? 0));
    const task = one.labels.task ?? "";
    found.set(task, (found.get(task) ?? 0) + (60 * grown) / (last.at - first.at));
  }
  return found;
}

const ended = (reading: Reading): Sample[] => reading.samples.filter((one) => one.name === "penstock_step_events_total" && ENDS.has(one.labels.event ?? ""));

/** "0", "0.4", "12". */
export const shownRate = (rate: number): string => (rate === 0 ? "0" : rate < 10 ? rate.toFixed(1) : String(Math.round(rate)));
