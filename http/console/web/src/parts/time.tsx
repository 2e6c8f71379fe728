/** Moments and durations that go on while they are seen. Only these small components are drawn again as time passes. */

import { ago, bothZones, duration, instant, inUtc, moment, now, ticking } from "./times";

export function Moment({ at, exact = false }: { at: string | null | undefined; exact?: boolean }) {
  if (!at) return <span class="none">–</span>;
  const ms = instant(at);
  return (
    <time dateTime={at} title={bothZones(ms)}>
      {moment(ms, inUtc.value, exact)}
    </time>
  );
}

export function Ago({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="none">–</span>;
  const ms = instant(at);
  return (
    <time dateTime={at} title={bothZones(ms)}>
      {ago(ms, now.value)}
    </time>
  );
}

/** From `from` to `to`; ticks while there is no `to`. */
export function Elapsed({ from, to }: { from: string | null | undefined; to?: string | null | undefined }) {
  if (!from) return <span class="none">–</span>;
  if (to) return <span class="number">{duration(instant(to) - instant(from))}</span>;
  return <span class="number">{ticking(now.value - instant(from))}</span>;
}
