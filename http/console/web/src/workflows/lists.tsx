/** What belongs to a workflow: its last runs and its triggers. */

import { shortId } from "../parts/copy";
import { Status } from "../parts/status";
import { Ago, Elapsed } from "../parts/time";
import { part } from "../service/requests";
import type { Run, Trigger } from "../service/types";
import { address } from "../shell/router";
import { kindOf, sourceOf } from "../triggers/model";

export function LastRuns({ runs }: { runs: readonly Run[] }) {
  if (runs.length === 0) return <p class="quiet">No run yet.</p>;
  return (
    <div class="table-frame">
      <table class="list">
        <thead class="visually-hidden">
          <tr>
            <th>Status</th>
            <th>Run</th>
            <th class="wide-only">Version</th>
            <th>Created</th>
            <th>Took</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.run_id}>
              <td>
                <Status status={run.paused_at ? "paused" : run.status} />
              </td>
              <td>
                <a class="mono" href={address(`/runs/${part(run.run_id)}`)}>
                  {shortId(run.run_id)}
                </a>
              </td>
              <td class="mono quiet wide-only">@{run.version}</td>
              <td class="quiet nowrap">
                <Ago at={run.created_at} />
              </td>
              <td class="right nowrap">
                <Elapsed from={run.started_at} to={run.finished_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function TriggersOf({ triggers }: { triggers: readonly Trigger[] }) {
  if (triggers.length === 0) return <p class="quiet">No trigger starts it.</p>;
  return (
    <div class="table-frame">
      <table class="list">
        <tbody>
          {triggers.map((trigger) => (
            <tr key={trigger.name}>
              <td>
                <a href={address(`/triggers/${part(trigger.name)}`)}>{trigger.name}</a>
              </td>
              <td>
                <span class="badge">{kindOf(trigger)}</span>
              </td>
              <td class="mono">{sourceOf(trigger)}</td>
              <td class="quiet nowrap right">{!trigger.enabled ? "disabled" : trigger.next_at ? <Ago at={trigger.next_at} /> : ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
