/** The page of one run. */

import { useSignal, useSignalEffect, type ReadonlySignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Problem, Waiting } from "../parts/messages";
import { get, part, query } from "../service/requests";
import type { Run } from "../service/types";
import { place, setParams } from "../shell/router";
import { instant } from "../parts/times";
import { Banner } from "./banner";
import { CompareButton, Comparison, useComparison } from "./compare";
import { EventTable } from "./events";
import { Head } from "./head";
import { Spans } from "./model/spans";
import { readyOf, tracksFor } from "./rows";
import { Panel } from "./step/panel";
import { Value } from "./step/values";
import { RunStore } from "./store";
import { Timeline, type View } from "./timeline";

export function RunPage({ runId }: { runId: string }) {
  const store = useMemo(() => new RunStore(runId), [runId]);
  useEffect(() => () => store.stop(), [store]);
  const view: View = { zoom: useSignal(null), folding: useSignal(false), chosen: useSignal(place.peek().params.get("step")), marked: useSignal(null) };
  useSignalEffect(() => {
    view.chosen.value = place.value.params.get("step");
  });
  const past = usePast(store);
  const comparison = useComparison(runId);

  const run = past.value?.run ?? store.run.value;
  const graph = store.graph.value;
  const tracks = useMemo(() => (graph === null ? null : tracksFor(graph)), [graph]);
  if (run === null || graph === null || tracks === null) {
    return store.problem.value === null ? <Waiting what="the run" /> : <Problem problem={store.problem.value} back="/runs" />;
  }
  const grown = store.grown.value;
  const spans = past.value?.spans ?? store.spans;
  const until = past.value?.until ?? null;
  const chosen = view.chosen.value;
  const differing = new Set(Object.entries(comparison.value?.steps ?? {}).flatMap(([stepId, step]) => (step.differs ? [stepId] : [])));
  return (
    <div class={`run-page${chosen === null ? "" : " with-panel"}`}>
      <Head run={run} store={store} at={past.value?.at ?? null} more={<CompareButton run={run} />} />
      <div class="run-main">
        <Banner run={run} explanation={past.value === null ? store.explanation.value : null} isNow={past.value === null} choose={choose} />
        <Timeline run={run} graph={graph} spans={spans} grown={grown} until={until} view={view} differing={differing} choose={choose} />
        {comparison.value !== null && <Comparison diff={comparison.value} runId={runId} choose={choose} />}
        <section class="values" aria-label="Values">
          <h2 class="visually-hidden">Values</h2>
          <Value title="Input" value={run.input} size={run.input_bytes} path={`/runs/${part(runId)}`} pick={(answer) => (answer as Run).input} />
          <Result store={store} />
        </section>
        <EventTable store={store} at={past.value?.at ?? null} view={view} choose={choose} />
      </div>
      {chosen !== null && (
        <Panel key={chosen} store={store} run={run} graph={graph} stepId={chosen} ready={readyOf(chosen, run, tracks, spans)} at={past.value?.at ?? null} close={close} />
      )}
    </div>
  );
}

function choose(stepId: string | null): void {
  setParams({ step: stepId }, { replace: true });
}

const close = (): void => choose(null);

/** What the run has given back, out of its last event. */
function Result({ store }: { store: RunStore }) {
  void store.grown.value;
  const last = store.events.at(-1);
  if (last?.type !== "workflow.completed") return null;
  const payload = last.payload as { output?: unknown; output_bytes?: number } | undefined;
  const path = `/runs/${part(store.runId)}/events${query({ after: last.seq - 1, limit: 1 })}`;
  const pick = (answer: unknown) => (answer as { payload?: { output?: unknown } }[])[0]?.payload?.output;
  return <Value title="Output" value={payload?.output} size={last.payload_bytes} path={path} pick={pick} />;
}

interface Past {
  readonly at: number;
  readonly run: Run;
  readonly spans: Spans;
  /** The time of the event at that sequence. */
  readonly until: number;
}

/** The run as it was at the sequence `?at=`, which the service folds; null now. */
function usePast(store: RunStore): ReadonlySignal<Past | null> {
  const found = useSignal<Past | null>(null);
  useSignalEffect(() => {
    const at = Number(place.value.params.get("at") ?? 0);
    void store.grown.value;
    if (at === 0) {
      found.value = null;
      return;
    }
    if (found.peek()?.at === at) return;
    const abort = new AbortController();
    get<Run>(`/runs/${part(store.runId)}${query({ at, payload_max: 1024 })}`, abort.signal)
      .then((run) => {
        const spans = new Spans();
        let until = instant(run.created_at);
        for (const event of store.events) {
          if (event.seq > at) break;
          spans.add(event);
          if (event.timestamp) until = Math.max(until, instant(event.timestamp));
        }
        found.value = { at, run, spans, until };
      })
      .catch(() => undefined);
    return () => abort.abort();
  });
  return found;
}
