/** Workers that serve the same task types, with how busy they are together. */

import { useState } from "preact/hooks";
import { Copy } from "../parts/copy";
import { count, plural } from "../parts/sizes";
import { Ago } from "../parts/time";
import type { Worker } from "../service/types";
import { shownRate } from "./rates";
import type { Team } from "./served";

const TYPES_SHOWN = 8;

export function TeamTable({ team, rates }: { team: Team; rates: ReadonlyMap<string, number> | null }) {
  const [all, setAll] = useState(false);
  const types = all ? team.types : team.types.slice(0, TYPES_SHOWN);
  return (
    <section class="team" aria-label={`Workers of ${team.types.slice(0, 3).join(", ")}`}>
      <header class="team-head">
        <div class="team-types">
          {team.group !== null && <span class="badge">group {team.group}</span>}
          {types.map((type) => (
            <code key={type}>{type}</code>
          ))}
          {team.types.length > types.length && (
            <button type="button" class="link" onClick={() => setAll(true)}>
              {team.types.length - types.length} more
            </button>
          )}
          {team.types.length === 0 && <span class="quiet">no task type</span>}
        </div>
        <Busy team={team} rates={rates} />
      </header>
      <div class="table-frame" tabIndex={0} role="region" aria-label={plural(team.workers.length, "worker")}>
        <table class="list stack">
          <thead>
            <tr>
              <th>Worker</th>
              <th>Host</th>
              <th>By</th>
              <th>Version</th>
              <th class="right" title="Tasks that it holds at one time, at most">
                Slots
              </th>
              <th class="right">Last seen</th>
              <th class="right" title="The signal by which it takes no more tasks, and lets those that run finish">
                Drain
              </th>
            </tr>
          </thead>
          <tbody>
            {team.workers.map((worker) => (
              <Row key={worker.worker_id} worker={worker} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Busy({ team, rates }: { team: Team; rates: ReadonlyMap<string, number> | null }) {
  const busy = Math.min(team.busy, team.slots);
  const hint = team.shared
    ? "Other workers serve some of these types, too: tasks that they have are among those in hand."
    : "Tasks that these workers have, of those that they can hold at one time.";
  return (
    <div class="busy" title={hint}>
      <svg class="busy-bar" width="120" height="8" viewBox="0 0 120 8" role="img" aria-label={`${busy} of ${team.slots} slots busy`}>
        <rect class="busy-all" width="120" height="8" rx="4" />
        {busy > 0 && <rect class={busy === team.slots ? "busy-now full" : "busy-now"} width={Math.max(6, (120 * busy) / team.slots)} height="8" rx="4" />}
      </svg>
      <span class="number">
        {team.shared && busy > 0 ? "at most " : ""}
        {count(busy)} of {count(team.slots)} busy
        {rates !== null && <span class="quiet"> · {shownRate(team.types.reduce((sum, type) => sum + (rates.get(type) ?? 0), 0))} tasks a minute</span>}
      </span>
    </div>
  );
}

function Row({ worker }: { worker: Worker }) {
  const metadata = Object.entries(worker.metadata ?? {});
  return (
    <tr>
      <td class="grow">
        <Copy text={worker.worker_id} label="Copy the worker's id" />
        {metadata.length > 0 && <div class="quiet cut worker-metadata">{metadata.map(([name, value]) => `${name}=${value}`).join("  ")}</div>}
      </td>
      <td class="nowrap" data-label="Host">{worker.hostname ?? <span class="none">–</span>}</td>
      <td class="nowrap" data-label="By">{[worker.language, worker.transport === "nats" ? "broker" : worker.transport].filter(Boolean).join(", ")}</td>
      <td class="mono" data-label="Version">{worker.version ?? <span class="none">–</span>}</td>
      <td class="right number" data-label="Slots">{count(worker.max_tasks ?? 1)}</td>
      <td class="right nowrap" data-label="Last seen">
        <Ago at={worker.last_seen} />
      </td>
      <td class="right nowrap" data-label="Drain">
        {worker.pid ? <Copy text={`kill -TERM ${worker.pid}`} label={`On ${worker.hostname ?? "its host"}`} /> : <span class="none">–</span>}
      </td>
    </tr>
  );
}
