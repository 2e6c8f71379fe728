/** How long the steps of some runs took, as bars on one logarithmic axis. */

import { instant } from "../../parts/times";
import type { Run } from "../../service/types";

export interface StepDurations {
  readonly id: string;
  /** Sorted, in ms. */
  readonly took: readonly number[];
  /** Steps in each bin. */
  readonly bins: readonly number[];
}

export interface Durations {
  readonly steps: readonly StepDurations[];
  /** The left edge of the first bin and the right edge of the last one, in ms. */
  readonly from: number;
  readonly to: number;
}

export const BINS = 24;

/** Of the steps that have completed, in the order of the definition; null without any. */
export function durationsOf(runs: readonly Run[], order: readonly string[]): Durations | null {
  const took = new Map<string, number[]>(order.map((id) => [id, []]));
  for (const run of runs) {
    for (const [id, step] of Object.entries(run.steps)) {
      if (step.status === "completed" && step.started_at && step.finished_at) {
        took.get(id)?.push(Math.max(0.1, instant(step.finished_at) - instant(step.started_at)));
      }
    }
  }
  const all = [...took.values()].flat();
  if (all.length === 0) return null;
  const from = 10 ** Math.floor(Math.log10(Math.min(...all)));
  const to = Math.max(from * 10, 10 ** Math.ceil(Math.log10(Math.max(...all)) + 1e-9));
  const bin = (ms: number): number => Math.min(BINS - 1, Math.floor((BINS * Math.log(ms / from)) / Math.log(to / from)));
  const steps = [...took].map(([id, found]) => {
    const bins = new Array<number>(BINS).fill(0);
    for (const ms of found) bins[bin(ms)]! += 1;
    return { id, took: found.sort((a, b) => a - b), bins };
  });
  return { steps, from, to };
}

/** The least duration that `part` of 100 do not exceed, of sorted ones. */
export const percentile = (sorted: readonly number[], part: number): number => sorted[Math.max(0, Math.ceil((sorted.length * part) / 100) - 1)] ?? 0;
