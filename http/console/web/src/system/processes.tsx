/** The processes of the service with the partitions that they own. */

import { Copy } from "../parts/copy";
import { quoted } from "../parts/dialog";
import { bytes, count, plural } from "../parts/sizes";
import { Elapsed } from "../parts/time";
import { may } from "../shell/session";
import { of, rate, total, type Reading, type Which } from "./metrics";

export function Processes({ readings }: { readings: readonly Reading[] }) {
  const [now, before] = [readings.at(-1)!, readings.at(-2)];
  const unowned = total(now, "penstock_partitions_unowned");
  const all = of(now, "penstock_process_start_time_seconds").sort((one, other) => name(one.labels).localeCompare(name(other.labels)));
  return (
    <>
      <h2 class="list-title">
        Processes {unowned > 0 && <span class="badge bad">{plural(unowned, "partition")} without an engine</span>}
      </h2>
      <div class="table-frame" tabIndex={0} role="region" aria-label="Processes">
        <table class="list stack">
          <thead>
            <tr>
              <th>Process</th>
              <th>Partitions</th>
              <th>Broker</th>
              <th class="right">CPU</th>
              <th class="right">Memory</th>
              <th class="right">Up</th>
              {may("admin") && <th title="Hands the partitions of all engines on the host over to others, before it is stopped">Drain the host</th>}
            </tr>
          </thead>
          <tbody>
            {all.map(({ labels, value }) => {
              const is: Which = (other) => other.host === labels.host && other.process === labels.process;
              const owned = of(now, "penstock_partition_owner", (other) => is(other)).filter((one) => one.value === 1);
              const host = labels.host ?? "";
              return (
                <tr key={name(labels)}>
                  <td class="nowrap">
                    <span class="strong">{labels.process}</span>
                    <span class="quiet">{host}</span>
                  </td>
                  <td data-label="Partitions">{owned.length > 0 ? <Partitions numbers={owned.map((one) => Number(one.labels.partition))} /> : <span class="none">–</span>}</td>
                  <td class="nowrap" data-label="Broker">{total(now, "penstock_broker_connected", is) > 0 ? "connected" : <span class="badge bad">away</span>}</td>
                  <td class="right number nowrap" data-label="CPU">
                    {before === undefined ? <span class="none">–</span> : `${Math.round(100 * rate(before, now, "penstock_process_cpu_seconds_total", is))} %`}
                  </td>
                  <td class="right number nowrap" data-label="Memory">{bytes(total(now, "penstock_process_resident_memory_bytes", is))}</td>
                  <td class="right nowrap" data-label="Up">
                    <Elapsed from={new Date(value * 1000).toISOString()} />
                  </td>
                  {may("admin") && <td data-label="Drain">{owned.length > 0 && <Copy text={`penstock drain --host ${quoted(host)}`} />}</td>}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </>
  );
}

const name = (labels: Readonly<Record<string, string>>): string => `${labels.host} ${labels.process}`;

/** Each of the partitions as a cell, those of this process filled. */
function Partitions({ numbers }: { numbers: readonly number[] }) {
  const most = 32;
  const owned = new Set(numbers);
  return (
    <span class="partitions" title={`Partitions ${numbers.join(", ")}`}>
      <svg width={most * 5} height="12" viewBox={`0 0 ${most * 5} 12`} aria-hidden="true">
        {Array.from({ length: most }, (_, number) => (
          <rect key={number} class={owned.has(number) ? "partition own" : "partition"} x={number * 5} y="0" width="4" height="12" rx="1" />
        ))}
      </svg>
      <span class="number">{count(numbers.length)}</span>
    </span>
  );
}
