/** How far the steps of a run are: a strip with a part for each status, and the numbers. */

import { plural } from "../parts/sizes";

const ORDER = ["completed", "recovered", "failed", "running", "queued", "skipped", "cancelled", "pending"] as const;
const DONE = new Set(["completed", "recovered", "skipped"]);
const WORDS: Record<string, string> = { pending: "waiting" };

export function StepsStrip({ steps }: { steps: Record<string, number> }) {
  const total = Object.values(steps).reduce((sum, one) => sum + one, 0);
  if (total === 0) return <span class="none">–</span>;
  const done = Object.entries(steps).reduce((sum, [status, number]) => sum + (DONE.has(status) ? number : 0), 0);
  const found = ORDER.filter((status) => steps[status]);
  const text = `${plural(total, "step")}: ${found.map((status) => `${steps[status]} ${WORDS[status] ?? status}`).join(", ")}`;
  return (
    <span class="steps-strip" title={text}>
      <span class="steps-strip-bar" aria-hidden="true">
        {found.map((status) => (
          <span key={status} class={`steps-strip-part p-${status}`} style={{ flexGrow: String(steps[status]) }} />
        ))}
      </span>
      <span class="steps-strip-count number" aria-hidden="true">
        {done}/{total}
      </span>
      <span class="visually-hidden">{text}</span>
    </span>
  );
}
