/** The page of one workflow: its graph, its numbers, its triggers, limits, runs and versions. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Json } from "../parts/json";
import { Problem, Waiting } from "../parts/messages";
import { count } from "../parts/sizes";
import { Strip } from "../parts/strip";
import { duration } from "../parts/times";
import { StartRun } from "../runs/start";
import { usePolled } from "../service/polled";
import { part, query } from "../service/requests";
import type { Run, Trigger, Worker } from "../service/types";
import { address, place, setParams } from "../shell/router";
import { may } from "../shell/session";
import { Delete } from "./delete";
import { Graph } from "./graph";
import { LimitsOf, limitsOf } from "./limits";
import { LastRuns, TriggersOf } from "./lists";
import { retryText, unserved, versionOf, type Definition } from "./model/definition";
import { inStatus, useNumbers } from "./numbers";
import { StepSide } from "./step";
import { StepsTook } from "./steps_took";
import { Versions } from "./versions";

const EVERY_MS = 4000;
const RUNS_MAX = 100;
const STEPS_MAX = 1500; // of all runs together: what is read stays below 256 KB

export function WorkflowPage({ name }: { name: string }) {
  const path = `/workflows/${part(name)}`;
  const definition = usePolled<Definition>(path, EVERY_MS);
  const workers = usePolled<Worker[]>("/workers", EVERY_MS);
  const triggers = usePolled<Trigger[]>("/triggers", EVERY_MS);
  const steps = definition.data?.steps.length ?? 0;
  const limit = Math.max(10, Math.min(RUNS_MAX, Math.floor(STEPS_MAX / Math.max(1, steps))));
  const runs = usePolled<Run[]>(steps === 0 ? null : `/runs${query({ workflow: name, limit, payload_max: 0 })}`, EVERY_MS);
  const chosen = place.value.params.get("step");
  const choose = (step: string | null) => setParams({ step }, { replace: true });
  if (definition.data === null) return definition.problem === null ? <Waiting what="the workflow" /> : <Problem problem={definition.problem} back="/workflows" />;
  const shown = definition.data;
  const missing = new Set(workers.data === null ? [] : unserved(shown, workers.data));
  const step = shown.steps.find((one) => one.id === chosen);
  const limits = limitsOf(shown);
  const own = (triggers.data ?? []).filter((one) => one.workflow === name);
  return (
    <div class="one-page">
      <Head definition={shown} missing={missing} />
      <div class={`graph-and-side${step === undefined ? "" : " with-side"}`}>
        <Graph definition={shown} missing={missing} chosen={chosen} choose={choose} />
        {step !== undefined && <StepSide step={step} definition={shown} isMissing={missing.has(step.task ?? "")} close={() => choose(null)} />}
      </div>
      <div class="sections">
        <Section title="Last runs" more={<a href={address(`/runs${query({ workflow: name })}`)}>All runs</a>}>
          {runs.data === null ? <Waiting what="runs" /> : <LastRuns runs={runs.data.slice(0, 10)} />}
        </Section>
        <Section title="How long steps take" more={<span class="quiet">last {count(runs.data?.length ?? 0)} runs</span>}>
          {runs.data !== null && <StepsTook runs={runs.data} order={shown.steps.map((one) => one.id)} />}
        </Section>
        <Section title="Triggers">
          <TriggersOf triggers={own} />
        </Section>
        <Section title="Input schema">
          {shown.input_schema === undefined || shown.input_schema === null ? (
            <p class="quiet">Any JSON is accepted.</p>
          ) : (
            <div class="json">
              <Json value={shown.input_schema} />
            </div>
          )}
        </Section>
        {limits.length > 0 && (
          <Section title="Limits" wide more={<a href={address("/limits")}>All limits</a>}>
            <LimitsOf limits={limits} />
          </Section>
        )}
        <Section title="Versions" wide>
          <Versions name={name} />
        </Section>
      </div>
    </div>
  );
}

function Section({ title, more, wide = false, children }: { title: string; more?: ComponentChildren; wide?: boolean; children: ComponentChildren }) {
  return (
    <section class={`section${wide ? " wide" : ""}`} aria-label={title}>
      <header>
        <h2>{title}</h2>
        {more}
      </header>
      {children}
    </section>
  );
}

function Head({ definition, missing }: { definition: Definition; missing: ReadonlySet<string> }) {
  const [deleting, setDeleting] = useState(false);
  const [starting, setStarting] = useState(false);
  const name = definition.name;
  const numbers = useNumbers("workflow", { workflow: name });
  const hour = numbers.hour.get(name);
  return (
    <header class="one-head">
      <div class="one-title">
        <h1>
          {name} <span class="quiet mono">@{versionOf(definition)}</span>
        </h1>
        {definition.description && <p class="quiet">{definition.description}</p>}
        <p class="one-facts">
          {definition.timeout && <span class="badge">timeout {definition.timeout}</span>}
          {definition.default_retry && <span class="badge">retries {retryText(definition.default_retry)}</span>}
          {definition.sticky && <span class="badge">sticky {definition.sticky}</span>}
          {definition.on_failure && (
            <span class="badge">
              on failure <a href={address(`/workflows/${part(definition.on_failure.workflow)}`)}>{definition.on_failure.workflow}</a>
            </span>
          )}
          {[...missing].map((task) => (
            <span key={task} class="badge warn">
              nobody serves {task}
            </span>
          ))}
        </p>
      </div>
      <dl class="one-numbers">
        <div>
          <dt>24 hours</dt>
          <dd>
            <Strip buckets={numbers.day.get(name)?.buckets ?? []} begin={numbers.begin} label={name} />
          </dd>
        </div>
        <Figure name="Runs / h" value={count(hour?.total ?? 0)} />
        <Figure name="Failed" value={count(inStatus(hour, "failed"))} bad={inStatus(hour, "failed") > 0} />
        <Figure name="p50" value={hour?.durations ? duration(hour.durations.p50_ms) : "–"} />
        <Figure name="p99" value={hour?.durations ? duration(hour.durations.p99_ms) : "–"} />
      </dl>
      <div class="actions">
        {may("operate") && (
          <button type="button" class="primary" onClick={() => setStarting(true)}>
            Start a run…
          </button>
        )}
        {may("admin") && (
          <button type="button" class="danger-quiet" onClick={() => setDeleting(true)}>
            Delete…
          </button>
        )}
      </div>
      {starting && <StartRun workflows={[name]} chosen={name} close={() => setStarting(false)} />}
      {deleting && <Delete name={name} close={() => setDeleting(false)} />}
    </header>
  );
}

function Figure({ name, value, bad = false }: { name: string; value: string; bad?: boolean }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class={`number${bad ? " bad" : ""}`}>{value}</dd>
    </div>
  );
}
