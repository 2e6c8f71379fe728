/** The list of triggers: what each listens to, when it has fired and will, and how its runs went. */

import { useState } from "preact/hooks";
import { Empty, Problem, Waiting } from "../parts/messages";
import { count } from "../parts/sizes";
import { Strip } from "../parts/strip";
import { Ago } from "../parts/time";
import { usePolled } from "../service/polled";
import { part, query } from "../service/requests";
import type { Trigger } from "../service/types";
import { address, place, setParams } from "../shell/router";
import { may } from "../shell/session";
import { inStatus, useNumbers, type Numbers } from "../workflows/numbers";
import { Edit } from "./edit";
import { kindOf, sourceOf } from "./model";

const EVERY_MS = 3000;

export function TriggersPage() {
  const triggers = usePolled<Trigger[]>("/triggers", EVERY_MS);
  const numbers = useNumbers("trigger");
  const [creating, setCreating] = useState(false);
  const text = place.value.params.get("q") ?? "";
  if (triggers.data === null) return triggers.problem === null ? <Waiting what="triggers" /> : <Problem problem={triggers.problem} />;
  const wanted = text.toLowerCase();
  const shown = triggers.data.filter((one) => one.name.toLowerCase().includes(wanted) || one.workflow.toLowerCase().includes(wanted));
  return (
    <div class="list-page">
      <header class="list-head">
        <h1>Triggers</h1>
        <span class="quiet">{count(triggers.data.length)}</span>
        <input
          type="search"
          aria-label="Find triggers by name or workflow"
          placeholder="Find by name or workflow"
          value={text}
          onInput={(event) => setParams({ q: event.currentTarget.value }, { replace: true })}
        />
        {may("admin") && (
          <button type="button" class="primary" onClick={() => setCreating(true)}>
            Create…
          </button>
        )}
      </header>
      {triggers.data.length === 0 ? (
        <Empty title="No trigger starts runs yet.">
          <p>Triggers start runs by the clock, by webhooks, by events, by messages and by requests.</p>
        </Empty>
      ) : shown.length === 0 ? (
        <Empty title="No trigger has such a name or workflow." />
      ) : (
        <Table shown={shown} numbers={numbers} />
      )}
      {creating && <Edit trigger={null} close={() => setCreating(false)} />}
    </div>
  );
}

function Table({ shown, numbers }: { shown: readonly Trigger[]; numbers: Numbers }) {
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label="Triggers">
      <table class="list">
        <thead>
          <tr>
            <th>Trigger</th>
            <th>Kind</th>
            <th>Listens to</th>
            <th>Workflow</th>
            <th>Last 24 hours</th>
            <th class="right">Failed</th>
            <th class="right" title="Its last run in 24 hours">Last</th>
            <th class="right">Next</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((trigger) => (
            <Row key={trigger.name} trigger={trigger} numbers={numbers} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ trigger, numbers }: { trigger: Trigger; numbers: Numbers }) {
  const day = numbers.day.get(trigger.name);
  const failed = inStatus(day, "failed");
  return (
    <tr class={trigger.enabled ? "" : "off"}>
      <td>
        <a class="strong" href={address(`/triggers/${part(trigger.name)}`)}>
          {trigger.name}
        </a>
        {!trigger.enabled && <span class="badge">disabled</span>}
      </td>
      <td>
        <span class="badge">{kindOf(trigger)}</span>
      </td>
      <td class="mono source" title={sourceOf(trigger)}>
        {sourceOf(trigger)}
      </td>
      <td>
        <a href={address(`/workflows/${part(trigger.workflow)}`)}>{trigger.workflow}</a>
      </td>
      <td>
        <Strip buckets={day?.buckets ?? []} begin={numbers.begin} label={trigger.name} />
      </td>
      <td class="right number">
        {failed === 0 ? (
          <span class="none">0</span>
        ) : (
          <a class="bad" href={address(`/runs${query({ trigger: trigger.name, status: "failed" })}`)}>
            {count(failed)}
          </a>
        )}
      </td>
      <td class="right">
        <Ago at={day?.newest_at} />
      </td>
      <td class="right">
        <Ago at={trigger.next_at} />
      </td>
    </tr>
  );
}
