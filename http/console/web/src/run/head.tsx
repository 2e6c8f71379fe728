/** The sticky head of a run: what it is, how it stands, and what can be done with it. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Copy, shortId } from "../parts/copy";
import { Status } from "../parts/status";
import { Ago, Elapsed, Moment } from "../parts/time";
import { address, setParams } from "../shell/router";
import { part } from "../service/requests";
import type { GraphNode, Run } from "../service/types";
import { Actions } from "./actions";
import { ENDED, type RunStore } from "./store";

interface Props {
  run: Run;
  store: RunStore;
  /** The sequence that the page shows; null: now. */
  at: number | null;
  /** Further buttons. */
  more: ComponentChildren;
}

export function Head({ run, store, at, more }: Props) {
  const box = useRef<HTMLElement>(null);
  useHeight(box);
  const children = store.graph.value?.nodes.filter((node) => hasChildren(node, run)).length ?? 0;
  return (
    <header ref={box} class={`run-head${at === null ? "" : " past"}`}>
      <div class="run-title">
        <Status status={run.status} />
        {run.paused_at && <Status status="paused" />}
        {at === null && isHeldUp(store) && !run.paused_at && !ENDED.has(run.status) && <Status status="held up" />}
        <h1>
          <a href={address(`/workflows/${part(run.workflow_id)}`)}>{run.workflow_id}</a>
          {run.version !== "" && <span class="version">@{run.version}</span>}
        </h1>
        <Copy text={run.run_id} shown={shortId(run.run_id)} label="Copy the run's id" />
        {!store.connected.value && <span class="badge warn">connection lost, trying again</span>}
        {at !== null && (
          <span class="badge warn">
            as it was at event {at}{" "}
            <button type="button" class="link" onClick={() => setParams({ at: null }, { replace: true })}>
              back to now
            </button>
          </span>
        )}
        <Actions run={run} store={store} more={more} />
      </div>
      <dl class="facts">
        <Fact name="Started">
          <Moment at={run.started_at ?? run.created_at} />
        </Fact>
        <Fact name={run.finished_at ? "Took" : "For"}>
          <Elapsed from={run.started_at ?? run.created_at} to={run.finished_at} />
        </Fact>
        {run.finished_at && (
          <Fact name="Ended">
            <Ago at={run.finished_at} />
          </Fact>
        )}
        {run.paused_at && (
          <Fact name="Since">
            <Ago at={run.paused_at} />
          </Fact>
        )}
        {run.run_at && run.status === "scheduled" && (
          <Fact name="Starts">
            <Ago at={run.run_at} />
          </Fact>
        )}
        {run.trigger && (
          <Fact name="Trigger">
            <a href={address(`/triggers/${part(run.trigger.name)}`)}>{run.trigger.name}</a>
          </Fact>
        )}
        {run.parent && typeof run.parent === "object" && (
          <Fact name="Parent">
            <a href={address(`/runs/${part(run.parent.run_id)}?step=${part(run.parent.step_id)}`)}>{shortId(run.parent.run_id)}</a>
          </Fact>
        )}
        {children > 0 && (
          <Fact name="Children">
            <a href={address(`/runs?parent=${part(run.run_id)}`)}>{children === 1 ? "1 step's" : `${children} steps'`}</a>
          </Fact>
        )}
        {run.rerun_of && (
          <Fact name="Rerun of">
            <a href={address(`/runs/${part(run.rerun_of)}`)}>{shortId(run.rerun_of)}</a>
          </Fact>
        )}
        {run.failure_of && (
          <Fact name="Failure of">
            <a href={address(`/runs/${part(run.failure_of)}`)}>{shortId(run.failure_of)}</a>
          </Fact>
        )}
        {Object.entries(run.labels ?? {}).map(([key, value]) => (
          <Fact key={key} name={key}>
            <a href={address(`/runs?label=${part(`${key}:${value}`)}`)}>{value}</a>
          </Fact>
        ))}
      </dl>
    </header>
  );
}

/** Whether somebody has to act, as the list of runs says it. */
const isHeldUp = (store: RunStore): boolean => store.explanation.value?.waiting.some((one) => one.wants_somebody) ?? false;

/** Whether a step has started runs of its own. */
function hasChildren(node: GraphNode, run: Run): boolean {
  const step = run.steps[node.id];
  return Boolean(step?.child_run_id) || (node.type === "map" && !node.task && step?.items !== undefined);
}

/** What sticks below the head has to know its height, which depends on how its lines break. */
function useHeight(box: { readonly current: HTMLElement | null }): void {
  useLayoutEffect(() => {
    const head = box.current;
    if (head === null) return;
    const observer = new ResizeObserver(() => {
      const sticks = getComputedStyle(head).position === "sticky";
      document.documentElement.style.setProperty("--head", `${sticks ? head.offsetHeight : 0}px`);
    });
    observer.observe(head);
    return () => observer.disconnect();
  }, []);
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
