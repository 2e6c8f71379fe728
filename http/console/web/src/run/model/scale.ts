/** Where a moment stands on the time axis, from 0 (left) to 1: with a part that is zoomed into, and idle time folded. */

export interface Busy {
  readonly from: number;
  readonly to: number;
}

export interface Fold {
  readonly from: number;
  readonly to: number;
}

/** How much of the axis a fold takes, and from which share of the whole on a stretch without work is one. */
const FOLD_WIDTH = 0.04;
const FOLD_SHARE = 0.15;
const FOLD_MS_MIN = 2000;
const FOLDS_MAX = 5;

export class Scale {
  private readonly knots: readonly { at: number; x: number }[];

  constructor(
    readonly from: number,
    readonly to: number,
    readonly folds: readonly Fold[] = [],
  ) {
    const inside = folds.filter((fold) => fold.from >= from && fold.to <= to);
    const folded = inside.reduce((sum, fold) => sum + (fold.to - fold.from), 0);
    const perMs = (1 - inside.length * FOLD_WIDTH) / Math.max(1e-3, to - from - folded);
    const knots = [{ at: from, x: 0 }];
    let [at, x] = [from, 0];
    for (const fold of inside) {
      x += (fold.from - at) * perMs;
      knots.push({ at: fold.from, x });
      x += FOLD_WIDTH;
      knots.push({ at: fold.to, x });
      at = fold.to;
    }
    knots.push({ at: to, x: 1 });
    this.knots = knots;
  }

  /** Outside of the axis: below 0 or above 1. */
  x(at: number): number {
    const [low, high] = this.around((knot) => knot.at <= at);
    return low.x + ((at - low.at) / Math.max(1e-6, high.at - low.at)) * (high.x - low.x);
  }

  /** The moment at a place of the axis. */
  at(x: number): number {
    const [low, high] = this.around((knot) => knot.x <= x);
    return low.at + ((x - low.x) / Math.max(1e-9, high.x - low.x)) * (high.at - low.at);
  }

  private around(isBefore: (knot: { at: number; x: number }) => boolean) {
    let index = 0;
    while (index < this.knots.length - 2 && isBefore(this.knots[index + 1]!)) index += 1;
    return [this.knots[index]!, this.knots[index + 1]!] as const;
  }

  /** Round moments to label: their distance from `from` in ms, about `wanted` of them, none within a fold. */
  ticks(wanted: number): { at: number; x: number; offset: number }[] {
    const folded = this.folds.reduce((sum, fold) => sum + fold.to - fold.from, 0);
    const step = roundStep((this.to - this.from - folded) / wanted);
    const found: { at: number; x: number; offset: number }[] = [];
    let last = -1;
    for (let at = this.from; at <= this.to && found.length < 200; at += step) {
      const hidden = this.folds.find((fold) => at > fold.from && at < fold.to);
      if (hidden !== undefined) {
        at = this.from + Math.floor((hidden.to - this.from) / step) * step;
        continue;
      }
      const x = this.x(at);
      if (x - last > 0.5 / wanted) {
        found.push({ at, x, offset: at - this.from });
        last = x;
      }
    }
    return found;
  }
}

const STEPS_MS = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000,
  600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000, 604_800_000,
];

function roundStep(ms: number): number {
  return STEPS_MS.find((step) => step >= ms) ?? Math.ceil(ms / 604_800_000) * 604_800_000;
}

/** Long stretches in which nothing was carried out, the longest first to be folded, in the order of time. */
export function idle(busy: readonly Busy[], from: number, to: number): Fold[] {
  const sorted = [...busy].sort((a, b) => a.from - b.from);
  const gaps: Fold[] = [];
  let until = from;
  for (const one of sorted) {
    if (one.from > until) gaps.push({ from: until, to: one.from });
    until = Math.max(until, one.to);
  }
  if (to > until) gaps.push({ from: until, to });
  return gaps
    .filter((gap) => gap.to - gap.from > Math.max(FOLD_MS_MIN, FOLD_SHARE * (to - from)))
    .sort((a, b) => b.to - b.from - (a.to - a.from))
    .slice(0, FOLDS_MAX)
    .map((gap) => shrunk(gap))
    .sort((a, b) => a.from - b.from);
}

/** A little of the gap stays visible on both sides. */
function shrunk(gap: Fold): Fold {
  const edge = Math.min(200, (gap.to - gap.from) * 0.02);
  return { from: gap.from + edge, to: gap.to - edge };
}
