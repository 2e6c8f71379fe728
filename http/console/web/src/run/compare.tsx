/** This run beside another one: by default the last of its workflow that has completed. What differs is marked. */

import { useSignal, useSignalEffect, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { shortId } from "../parts/copy";
import { duration } from "../parts/times";
import { get, part, query } from "../service/requests";
import type { Run, RunDiff } from "../service/types";
import { address, place, setParams } from "../shell/router";

/** The comparison that the address asks for with `with=`; null without one. */
export function useComparison(runId: string): Signal<RunDiff | null> {
  const found = useSignal<RunDiff | null>(null);
  useSignalEffect(() => {
    const other = place.value.params.get("with");
    if (other === null) {
      found.value = null;
      return;
    }
    const abort = new AbortController();
    get<RunDiff>(`/runs/${part(runId)}/diff/${part(other)}`, abort.signal)
      .then((diff) => (found.value = diff))
      .catch(() => (found.value = null));
    return () => abort.abort();
  });
  return found;
}

export function CompareButton({ run }: { run: Run }) {
  const candidate = useSignal<string | null | undefined>(undefined);
  useEffect(() => {
    candidate.value = undefined;
  }, [run.run_id]);
  async function compare(): Promise<void> {
    const listed = await get<Run[]>(`/runs${query({ workflow: run.workflow_id, status: "completed", limit: 2, payload_max: 0 })}`);
    const other = listed.find((one) => one.run_id !== run.run_id)?.run_id ?? null;
    candidate.value = other;
    if (other !== null) setParams({ with: other }, { replace: true });
  }
  if (place.value.params.get("with") !== null) {
    return (
      <button type="button" onClick={() => setParams({ with: null }, { replace: true })}>
        End comparison
      </button>
    );
  }
  return (
    <button type="button" onClick={() => void compare()} title="Beside the last run of this workflow that has completed">
      {candidate.value === null ? "No other run has completed" : "Compare"}
    </button>
  );
}

interface Side {
  status?: string;
  attempts?: number;
  duration_ms?: number;
  error?: string;
  output?: unknown;
}

const SHOWN_MAX = 120;

export function Comparison({ diff, runId, choose }: { diff: RunDiff; runId: string; choose: (stepId: string) => void }) {
  const other = place.value.params.get("with") ?? "";
  const differing = Object.entries(diff.steps).filter(([, step]) => step.differs);
  return (
    <section class="comparison" aria-label="Comparison">
      <h2>
        {differing.length === 0 && !diff.run.differs ? "No difference" : "What differs"}{" "}
        <span class="quiet">
          to <a href={address(`/runs/${part(other)}?with=${part(runId)}`)}>{shortId(other)}</a>
        </span>
      </h2>
      <input
        type="search"
        aria-label="The id of the run to compare with"
        value={other}
        onChange={(event) => setParams({ with: event.currentTarget.value.trim() }, { replace: true })}
        class="mono"
      />
      <table>
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col">Differs in</th>
            <th scope="col">This run</th>
            <th scope="col">The other</th>
          </tr>
        </thead>
        <tbody>
          {diff.run.differs && (
            <tr>
              <th scope="row">the run</th>
              <td>{diff.run.fields.join(", ")}</td>
              <td>{side(diff.run.a as Side, diff.run.fields)}</td>
              <td>{side(diff.run.b as Side, diff.run.fields)}</td>
            </tr>
          )}
          {differing.map(([stepId, step]) => (
            <tr key={stepId}>
              <th scope="row">
                <button type="button" class="link" onClick={() => choose(stepId)}>
                  {stepId}
                </button>
              </th>
              <td>{(step.fields ?? []).join(", ") || "only in one run"}</td>
              <td>{side(step.a as Side | undefined, step.fields ?? [])}</td>
              <td>{side(step.b as Side | undefined, step.fields ?? [])}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** The fields that differ, in short, and how long it took. */
function side(found: Side | undefined, fields: readonly string[]): string {
  if (found === undefined) return "–";
  const values = found as Record<string, unknown>;
  const parts = fields.filter((field) => values[field] !== undefined).map((field) => `${field}: ${textOf(values[field])}`);
  if (found.duration_ms !== undefined) parts.push(duration(found.duration_ms));
  return parts.join(" · ");
}

function textOf(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text;
}
