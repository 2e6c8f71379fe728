/** Each execution of a step: how long it was queued, how long it ran, where, and how it ended. */

import { Copy } from "../../parts/copy";
import { duration } from "../../parts/times";
import type { Segment, StepSpans } from "../model/spans";

interface Props {
  spans: StepSpans;
  /** When the step could begin; null: not known. */
  ready: number | null;
}

export function Executions({ spans, ready }: Props) {
  const runs = spans.segments.filter((one) => one.kind === "run");
  if (runs.length === 0) return null;
  return (
    <section>
      <h3>Executions</h3>
      <table class="attempts">
        <thead>
          <tr>
            <th scope="col">Attempt</th>
            <th scope="col">Queued</th>
            <th scope="col">Ran</th>
            <th scope="col">Outcome</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((one, index) => (
            <Execution key={one.seq} execution={one} queuedFrom={index === 0 ? ready : queuedBefore(spans, one)} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** When it was due again, as its wait for a retry was over; null where it was not such a wait. */
function queuedBefore({ segments }: StepSpans, execution: Segment): number | null {
  const before = segments[segments.indexOf(execution) - 1];
  return before?.kind === "queued" ? before.from : null;
}

function Execution({ execution, queuedFrom }: { execution: Segment; queuedFrom: number | null }) {
  return (
    <tr>
      <td class="number">
        {execution.attempt}
        {execution.iteration > 0 && ` · ${execution.iteration + 1}`}
      </td>
      <td class="number">{queuedFrom === null ? "–" : duration(Math.max(0, execution.from - queuedFrom))}</td>
      <td class="number">{execution.to === null ? "…" : duration(execution.to - execution.from)}</td>
      <td>
        <span class={`outcome o-text-${(execution.outcome ?? "running").replace(" ", "-")}`}>{execution.outcome ?? "running"}</span>
        {execution.worker !== null && <Copy text={execution.worker} label="Copy the worker's id" />}
        {execution.error !== null && <div class="quiet">{execution.error.slice(0, 160)}</div>}
      </td>
    </tr>
  );
}
