/** Bars of how many runs there were in each hour of a day: those that failed at the foot, the others above. */

import { count, plural } from "./sizes";
import { moment, inUtc } from "./times";
import type { RunStats } from "../service/types";

const HOUR_MS = 3_600_000;
const HOURS = 24;
const WIDTH = 120;
const HEIGHT = 24;

/** The begin of the first of the 24 hours that end with the present one, for `after=`. */
export const dayBegins = (now: number): number => (Math.floor(now / HOUR_MS) - HOURS + 1) * HOUR_MS;

type Buckets = RunStats["buckets"];

/** `most`: the number of runs that is a whole bar, so that strips can be compared; by itself the most of this one. */
export function Strip({ buckets, begin, label, most }: { buckets: Buckets; begin: number; label: string; most?: number }) {
  const hours = Array.from({ length: HOURS }, (_, at) => ({ at: begin + at * HOUR_MS, good: 0, bad: 0 }));
  for (const bucket of buckets) {
    const hour = hours[Math.floor((Date.parse(bucket.at) - begin) / HOUR_MS)];
    if (hour === undefined) continue;
    hour.bad += bucket.counts["failed"] ?? 0;
    hour.good += Object.values(bucket.counts).reduce((sum, one) => sum + one, 0) - (bucket.counts["failed"] ?? 0);
  }
  const top = most ?? Math.max(1, ...hours.map((hour) => hour.good + hour.bad));
  const high = (runs: number): number => (runs === 0 ? 0 : Math.max(2, (runs / top) * (HEIGHT - 1)));
  const step = WIDTH / HOURS;
  const total = hours.reduce((sum, hour) => sum + hour.good + hour.bad, 0);
  const failed = hours.reduce((sum, hour) => sum + hour.bad, 0);
  const said = `${label}: ${plural(total, "run")} in 24 hours${failed > 0 ? `, ${count(failed)} failed` : ""}`;
  return (
    <svg class="strip" role="img" aria-label={said} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT}>
      <rect class="strip-ground" x={0} y={HEIGHT - 1} width={WIDTH} height={1} />
      {hours.map(({ at, good, bad }, index) => {
        const [low, rest] = [high(bad), high(good)];
        return (
          <g key={at}>
            <title>{`${moment(at, inUtc.value)}: ${plural(good + bad, "run")}${bad > 0 ? `, ${count(bad)} failed` : ""}`}</title>
            <rect class="strip-none" x={index * step + 0.5} y={0} width={step - 1} height={HEIGHT} />
            {rest > 0 && <rect class="strip-good" x={index * step + 0.5} y={HEIGHT - low - rest} width={step - 1} height={rest} rx={0.5} />}
            {low > 0 && <rect class="strip-bad" x={index * step + 0.5} y={HEIGHT - low} width={step - 1} height={low} rx={0.5} />}
          </g>
        );
      })}
    </svg>
  );
}
