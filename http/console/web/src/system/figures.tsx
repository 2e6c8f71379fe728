/** The figures of the service as charts: runs, queues, lag and requests. */

import { short } from "../parts/sizes";
import { Chart, type Line } from "./chart";
import { rate, total, type Reading, type Which } from "./metrics";

const perSecond = (value: number): string => `${value >= 100 ? short(Math.round(value)) : value.toFixed(value >= 10 ? 0 : 1)}/s`;
const whole = (value: number): string => short(Math.round(value));

/** Those of types that no worker has ever asked for are counted apart. */
const waiting = (reading: Reading): number =>
  total(reading, "penstock_queue_tasks", (labels) => labels.state === "waiting") + total(reading, "penstock_queue_unclaimed_tasks");

export function Figures({ readings }: { readings: readonly Reading[] }) {
  const later = readings.slice(1);
  const rates = (label: string, color: string, name: string, which: Which, dashed = false): Line => ({
    label,
    color,
    dashed,
    values: later.map((reading, index) => rate(readings[index]!, reading, name, which)),
  });
  const values = (label: string, color: string, name: string, which: Which = () => true): Line => ({
    label,
    color,
    values: readings.map((reading) => total(reading, name, which)),
  });
  const times = readings.map((reading) => reading.at);
  const event = (name: string): Which => (labels) => labels.event === name;
  const requests = "penstock_http_requests_total";
  return (
    <div class="charts">
      <Chart
        title="Runs"
        times={times.slice(1)}
        format={perSecond}
        lines={[
          rates("started", "run-bar", "penstock_run_events_total", event("started")),
          rates("completed", "good-bar", "penstock_run_events_total", event("completed")),
          rates("failed", "bad-bar", "penstock_run_events_total", event("failed"), true),
        ]}
      />
      <Chart
        title="Tasks"
        times={times}
        format={whole}
        lines={[
          { label: "waiting", color: "wait-bar", values: readings.map(waiting) },
          values("in hand", "run-bar", "penstock_queue_tasks", (labels) => labels.state === "delivered"),
        ]}
      />
      <Chart
        title="Events not handled yet"
        times={times}
        format={whole}
        lines={[values("by engines", "run-bar", "penstock_engine_lag_messages"), values("by the run index", "undo", "penstock_run_index_lag_messages")]}
      />
      <Chart
        title="HTTP requests"
        times={times.slice(1)}
        format={perSecond}
        lines={[
          rates("all", "run-bar", requests, () => true),
          rates("4xx", "wait-bar", requests, (labels) => labels.status?.startsWith("4") ?? false),
          rates("5xx", "bad-bar", requests, (labels) => labels.status?.startsWith("5") ?? false, true),
        ]}
      />
    </div>
  );
}
