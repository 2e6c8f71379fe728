/** How long each step took in the last runs: a histogram for each, all on one logarithmic axis. */

import { duration } from "../parts/times";
import type { Run } from "../service/types";
import { BINS, durationsOf, percentile, type StepDurations } from "./model/durations";

const WIDTH = 240;
const HEIGHT = 20;

export function StepsTook({ runs, order }: { runs: readonly Run[]; order: readonly string[] }) {
  const found = durationsOf(runs, order);
  if (found === null) return <p class="quiet">No step has completed in these runs.</p>;
  const middle = Math.sqrt(found.from * found.to);
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label="How long the steps took">
      <table class="list took">
        <thead>
          <tr>
            <th>Step</th>
            <th>
              <span class="took-axis">
                <span>{duration(found.from)}</span>
                <span>{duration(middle)}</span>
                <span>{duration(found.to)}</span>
              </span>
            </th>
            <th class="right">p50</th>
            <th class="right">p99</th>
            <th class="right">Times</th>
          </tr>
        </thead>
        <tbody>
          {found.steps.map((step) => (
            <tr key={step.id}>
              <td class="step-name">{step.id}</td>
              <td>
                <Histogram step={step} />
              </td>
              <td class="right number">{step.took.length === 0 ? <span class="none">–</span> : duration(percentile(step.took, 50))}</td>
              <td class="right number">{step.took.length === 0 ? <span class="none">–</span> : duration(percentile(step.took, 99))}</td>
              <td class="right number">{step.took.length}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Histogram({ step }: { step: StepDurations }) {
  const top = Math.max(1, ...step.bins);
  const wide = WIDTH / BINS;
  const said = step.took.length === 0 ? `${step.id} has not completed` : `${step.id}: half within ${duration(percentile(step.took, 50))}`;
  return (
    <svg class="histogram" role="img" aria-label={said} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT}>
      <rect class="strip-ground" x={0} y={HEIGHT - 1} width={WIDTH} height={1} />
      {step.bins.map((runs, bin) => {
        const high = runs === 0 ? 0 : Math.max(2, (runs / top) * (HEIGHT - 1));
        return high > 0 && <rect key={bin} class="histogram-bar" x={bin * wide + 0.5} y={HEIGHT - high} width={wide - 1} height={high} rx={1} />;
      })}
    </svg>
  );
}
