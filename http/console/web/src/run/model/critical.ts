/** The chain of steps that a run's duration comes from. */

interface Ended {
  readonly finished_at?: string | null;
}

/**
 * The ids on the critical path: from the step that has ended last, back to the one it waited for longest, and so on.
 * Times are text that sorts as times do (RFC 3339 in UTC).
 */
export function criticalPath(
  steps: Readonly<Record<string, Ended>>,
  before: ReadonlyMap<string, readonly string[]>,
): ReadonlySet<string> {
  const found = new Set<string>();
  let current = latest(Object.keys(steps), steps);
  while (current !== null && !found.has(current)) {
    found.add(current);
    current = latest(before.get(current) ?? [], steps);
  }
  return found.size > 1 ? found : new Set();
}

function latest(ids: readonly string[], steps: Readonly<Record<string, Ended>>): string | null {
  let best: string | null = null;
  let bestAt = "";
  for (const id of ids) {
    const at = steps[id]?.finished_at ?? "";
    if (at > bestAt) [best, bestAt] = [id, at];
  }
  return best;
}
