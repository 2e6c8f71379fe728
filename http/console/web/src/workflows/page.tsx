/** The list of workflows: how much each is used, how often it fails, how long it takes, and whether its tasks are served. */

import { useState } from "preact/hooks";
import { Empty, Problem, Waiting } from "../parts/messages";
import { count, plural } from "../parts/sizes";
import { Strip } from "../parts/strip";
import { duration } from "../parts/times";
import { usePolled } from "../service/polled";
import { part, query } from "../service/requests";
import { SUMMARIES, type WorkflowSummary } from "../service/types";
import { address, place, setParams } from "../shell/router";
import { inStatus, useNumbers, type Numbers } from "./numbers";

const EVERY_MS = 5000;

type Sort = "name" | "runs" | "failed" | "p99";

export function WorkflowsPage() {
  const definitions = usePolled<WorkflowSummary[]>(SUMMARIES, EVERY_MS);
  const numbers = useNumbers("workflow");
  const [sort, setSort] = useState<Sort>("name");
  const text = place.value.params.get("q") ?? "";
  if (definitions.data === null) return definitions.problem === null ? <Waiting what="workflows" /> : <Problem problem={definitions.problem} />;
  const shown = definitions.data.filter((one) => one.name.toLowerCase().includes(text.toLowerCase())).sort((a, b) => compare(sort, numbers, a, b));
  return (
    <div class="list-page">
      <header class="list-head">
        <h1>Workflows</h1>
        <span class="quiet">{count(definitions.data.length)}</span>
        <input
          type="search"
          aria-label="Find workflows by name"
          placeholder="Find by name"
          value={text}
          onInput={(event) => setParams({ q: event.currentTarget.value }, { replace: true })}
        />
      </header>
      {definitions.data.length === 0 ? (
        <Empty title="No workflow is registered yet.">
          <p>
            <code>penstock workflow register FILE</code> registers one.
          </p>
        </Empty>
      ) : shown.length === 0 ? (
        <Empty title="No workflow has such a name." />
      ) : (
        <Table shown={shown} numbers={numbers} sort={sort} setSort={setSort} />
      )}
    </div>
  );
}

interface TableProps {
  shown: readonly WorkflowSummary[];
  numbers: Numbers;
  sort: Sort;
  setSort: (sort: Sort) => void;
}

function Table({ shown, numbers, sort, setSort }: TableProps) {
  const head = (name: Sort, label: string, hint: string) => (
    <th class={name === "name" ? "" : "right"} aria-sort={sort === name ? (name === "name" ? "ascending" : "descending") : undefined} title={hint}>
      <button type="button" class="th" disabled={sort === name} onClick={() => setSort(name)}>
        {label}
      </button>
    </th>
  );
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label="Workflows">
      <table class="list">
        <thead>
          <tr>
            {head("name", "Workflow", "By name")}
            <th>Version</th>
            <th>Last 24 hours</th>
            {head("runs", "Runs / h", "Runs that were created in the last hour")}
            {head("failed", "Failed", "Those of the last hour that have failed")}
            <th class="right" title="Half of the completed runs of the last hour took no longer">
              p50
            </th>
            {head("p99", "p99", "99 of 100 completed runs of the last hour took no longer")}
          </tr>
        </thead>
        <tbody>
          {shown.map((definition) => (
            <Row key={definition.name} definition={definition} numbers={numbers} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ definition, numbers }: { definition: WorkflowSummary; numbers: Numbers }) {
  const hour = numbers.hour.get(definition.name);
  const failed = inStatus(hour, "failed");
  const missing = definition.unserved ?? 0;
  return (
    <tr>
      <td class="grow">
        <a class="strong" href={address(`/workflows/${part(definition.name)}`)}>
          {definition.name}
        </a>
        {missing > 0 && (
          <span class="badge warn" title={missing > 1 ? `${definition.unserved_task} and others` : undefined}>
            nobody serves {missing === 1 ? definition.unserved_task : plural(missing, "task")}
          </span>
        )}
        {definition.description && <div class="quiet cut">{definition.description}</div>}
      </td>
      <td class="mono">{definition.version}</td>
      <td>
        <Strip buckets={numbers.day.get(definition.name)?.buckets ?? []} begin={numbers.begin} label={definition.name} />
      </td>
      <td class="right number">
        <a class="plain" href={address(`/runs${query({ workflow: definition.name })}`)}>
          {hour === undefined ? <span class="none">0</span> : count(hour.total)}
        </a>
      </td>
      <td class="right number">
        {failed === 0 ? (
          <span class="none">0</span>
        ) : (
          <a class="bad" href={address(`/runs${query({ workflow: definition.name, status: "failed" })}`)}>
            {count(failed)}
          </a>
        )}
      </td>
      <td class="right number">{hour?.durations ? duration(hour.durations.p50_ms) : <span class="none">–</span>}</td>
      <td class="right number">{hour?.durations ? duration(hour.durations.p99_ms) : <span class="none">–</span>}</td>
    </tr>
  );
}

function compare(sort: Sort, numbers: Numbers, a: WorkflowSummary, b: WorkflowSummary): number {
  const [one, other] = [numbers.hour.get(a.name), numbers.hour.get(b.name)];
  const by: Record<Sort, () => number> = {
    name: () => 0,
    runs: () => (other?.total ?? 0) - (one?.total ?? 0),
    failed: () => inStatus(other, "failed") - inStatus(one, "failed"),
    p99: () => (other?.durations?.p99_ms ?? 0) - (one?.durations?.p99_ms ?? 0),
  };
  return by[sort]() || a.name.localeCompare(b.name);
}
