/** One step, at the side of its run: what went in, what came out, who carried it out and when. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { Copy } from "../../parts/copy";
import { Status } from "../../parts/status";
import { Ago, Elapsed, Moment } from "../../parts/time";
import { part } from "../../service/requests";
import { usePolled } from "../../service/polled";
import type { Graph, Run, Step, Worker } from "../../service/types";
import { address } from "../../shell/router";
import { ENDED, type RunStore } from "../store";
import { StepActions } from "./actions";
import { KeptCheckpoint } from "./checkpoint";
import { Elements } from "./elements";
import { ErrorText } from "./error";
import { Executions } from "./executions";
import { Chunks, Logs } from "./logs";
import { StepInput, Value } from "./values";

/** Steps of which a worker may have kept something. */
const KEEPING: ReadonlySet<string> = new Set(["running", "queued", "failed"]);

interface Props {
  store: RunStore;
  run: Run;
  graph: Graph;
  stepId: string;
  /** When the step could begin. */
  ready: number | null;
  /** The sequence that the page shows; null: now. */
  at: number | null;
  close: () => void;
}

export function Panel({ store, run, graph, stepId, ready, at, close }: Props) {
  useEscape(close);
  const step = run.steps[stepId];
  const node = graph.nodes.find((one) => one.id === stepId);
  const spans = store.spans.steps.get(stepId);
  return (
    <aside class="panel" aria-label={`Step ${stepId}`} tabIndex={0}>
      <div class="panel-head">
        <h2>{stepId}</h2>
        <button type="button" class="quiet-button" onClick={close} aria-label="Close the step">
          ✕
        </button>
      </div>
      {step === undefined ? (
        <p class="quiet">The run does not have this step{at === null ? "" : " at that moment"}.</p>
      ) : (
        <>
          <div class="panel-line">
            <Status status={step.status} />
            {node?.task && <span class="badge">task {node.task}</span>}
            {node !== undefined && node.type !== "normal" && <span class="badge">{node.type.replaceAll("_", " ")}</span>}
            {at === null && <StepActions run={run} stepId={stepId} step={step} type={node?.type ?? "normal"} store={store} />}
          </div>
          {step.error && <ErrorText error={step.error} traceback={step.traceback ?? null} />}
          <Facts step={step} />
          {step.items !== undefined && <Elements runId={run.run_id} stepId={stepId} counts={step.items} />}
          {spans !== undefined && <Executions spans={spans} ready={ready} />}
          {at === null && step.status !== "pending" && <StepInput path={`/runs/${part(run.run_id)}/steps/${part(stepId)}/input`} />}
          <Value title="Output" value={step.output} size={step.output_bytes} path={`/runs/${part(run.run_id)}/steps/${part(stepId)}/output`} />
          {at === null && node?.task && KEEPING.has(step.status) && !ENDED.has(run.status) && <KeptCheckpoint runId={run.run_id} stepId={stepId} />}
          <Chunks runId={run.run_id} stepId={stepId} />
          <Logs runId={run.run_id} stepId={stepId} />
        </>
      )}
    </aside>
  );
}

function Facts({ step }: { step: Step }) {
  const { progress } = step;
  return (
    <dl class="panel-facts">
      <Fact name="Began">
        <Moment at={step.started_at} exact />
      </Fact>
      <Fact name="Took">
        <Elapsed from={step.started_at} to={step.finished_at} />
      </Fact>
      {step.worker_id && (
        <Fact name="Worker">
          <Copy text={step.worker_id} label="Copy the worker's id" />
          <Host of={step.worker_id} />
        </Fact>
      )}
      {step.child_run_id && (
        <Fact name="Child run">
          <a href={address(`/runs/${part(step.child_run_id)}`)}>{step.child_run_id}</a>
        </Fact>
      )}
      {step.wake_at && (
        <Fact name="Wakes">
          <Ago at={step.wake_at} />
        </Fact>
      )}
      {step.waits_for && (
        <Fact name="Waits for">
          {step.waits_for.event}
          {step.waits_for.correlate && ` with ${step.waits_for.correlate.field} = ${JSON.stringify(step.waits_for.correlate.value)}`}
        </Fact>
      )}
      {progress !== undefined && (
        <Fact name="Progress">
          {progress.total ? <progress value={progress.done} max={progress.total} aria-label="Progress" /> : null} {progress.done}
          {progress.total ? ` of ${progress.total}` : ""} {progress.text}
        </Fact>
      )}
      {step.overridden && <Fact name="By hand">somebody has completed it</Fact>}
    </dl>
  );
}

/** The host of a worker that is still there. */
function Host({ of }: { of: string }) {
  const workers = usePolled<Worker[]>("/workers");
  const host = workers.data?.find((one) => one.worker_id === of)?.hostname;
  if (workers.data === null) return null;
  return <span class="quiet">{host ? ` on ${host}` : " is not there any more"}</span>;
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="panel-fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function useEscape(close: () => void): void {
  useEffect(() => {
    const leave = (event: KeyboardEvent) => {
      if (event.key === "Escape" && document.querySelector("dialog[open]") === null) close();
    };
    addEventListener("keydown", leave);
    return () => removeEventListener("keydown", leave);
  }, [close]);
}
