/** Why a run does not go on, or what it failed of, in one place above its steps. */

import { useEffect, useState } from "preact/hooks";
import { Sentence, TIME } from "../parts/sentence";
import { count } from "../parts/sizes";
import { StatusIcon } from "../parts/status";
import { Ago, Elapsed } from "../parts/time";
import { address } from "../shell/router";
import { get, part, query } from "../service/requests";
import type { Explanation, MapItem, Run, WaitingReason } from "../service/types";

interface Props {
  run: Run;
  /** null: not known, or the page shows the past. */
  explanation: Explanation | null;
  /** Whether the page shows the run as it is now. */
  isNow: boolean;
  choose: (stepId: string) => void;
}

const SHOWN_MAX = 3;

export function Banner({ run, explanation, isNow, choose }: Props) {
  return (
    <>
      {run.status === "failed" ? <Failure run={run} choose={choose} /> : <Waits reasons={explanation?.waiting ?? []} choose={choose} />}
      {isNow && run.status !== "failed" && <FailedElements run={run} choose={choose} />}
    </>
  );
}

function Waits({ reasons, choose }: { reasons: readonly WaitingReason[]; choose: Props["choose"] }) {
  if (reasons.length === 0) return null;
  const wanting = reasons.filter((one) => one.wants_somebody);
  const shown = [...wanting, ...reasons.filter((one) => !one.wants_somebody)];
  const act = wanting.length > 0;
  return (
    <div class={`banner ${act ? "act" : "calm"}`} role="status">
      <StatusIcon status={shown[0]!.reason === "paused" ? "paused" : act ? "held up" : "queued"} bare />
      <div class="banner-text">
        {shown.slice(0, SHOWN_MAX).map((reason) => (
          <Reason key={`${reason.step_id}${reason.reason}`} reason={reason} choose={choose} />
        ))}
        {shown.length > SHOWN_MAX && <p class="quiet">and {shown.length - SHOWN_MAX} more reasons</p>}
      </div>
    </div>
  );
}

function Reason({ reason, choose }: { reason: WaitingReason; choose: Props["choose"] }) {
  const blocker = blockerOf(reason);
  return (
    <p>
      <Sentence text={reason.text} />{" "}
      <span class="banner-more">
        <span class="quiet">
          for <Elapsed from={reason.since} />
          {reason.until && !TIME.test(reason.text) && (
            <>
              , ends by itself <Ago at={reason.until} />
            </>
          )}
        </span>
        {reason.step_id && (
          <button type="button" class="link" onClick={() => choose(reason.step_id!)}>
            show the step
          </button>
        )}
        {blocker !== null && <a href={address(blocker.path)}>{blocker.label}</a>}
      </span>
    </p>
  );
}

/** The page of what holds the run up; null where it is a step of the run itself. */
function blockerOf({ reason, details, step_id }: WaitingReason): { path: string; label: string } | null {
  switch (reason) {
    case "waiting_child":
      return typeof details["child_run_id"] === "string" ? { path: `/runs/${part(details["child_run_id"])}`, label: "go to the child" } : null;
    case "no_worker":
    case "worker_group_empty":
    case "workers_busy":
    case "queued_behind":
      return { path: `/workers${query({ q: typeof details["task"] === "string" ? details["task"] : null })}`, label: "who serves it" };
    case "concurrency":
    case "rate_limit":
      return typeof details["scope"] === "string" ? { path: limitPath(details["scope"], limitKind(reason, step_id), details["key"]), label: "the limit" } : null;
    case "sticky_worker_gone":
    case "worker_silent":
      return { path: "/workers", label: "the workers" };
    case "storage_full":
    case "partition_unowned":
    case "engine_behind":
      return { path: "/system", label: "the system" };
    default:
      return null;
  }
}

function limitKind(reason: WaitingReason["reason"], stepId: string | null | undefined): string {
  if (reason === "rate_limit") return "rate";
  return stepId ? "executions" : "runs";
}

const limitPath = (scope: string, kind: string, key: unknown): string => `/limits/${part(scope)}?${new URLSearchParams({ kind, ...(typeof key === "string" && { key }) })}`;

function Failure({ run, choose }: { run: Run; choose: Props["choose"] }) {
  const failed = Object.entries(run.steps).find(([, step]) => step.status === "failed" && step.error);
  const text = run.error ?? failed?.[1].error ?? "";
  return (
    <div class="banner failure" role="alert">
      <StatusIcon status="failed" bare />
      <div class="banner-text">
        <pre class="error-text">{text}</pre>
        {failed !== undefined && (
          <p>
            <button type="button" class="link" onClick={() => choose(failed[0])}>
              {failed[0]}
            </button>{" "}
            <span class="quiet">failed{failed[1].attempts > 1 ? ` after ${failed[1].attempts} attempts` : ""}</span>
          </p>
        )}
      </div>
    </div>
  );
}

/** Elements of maps that have failed without their run: it goes on, or has completed, and would not tell. */
function FailedElements({ run, choose }: { run: Run; choose: Props["choose"] }) {
  const maps = Object.entries(run.steps).filter(([, step]) => (step.items?.failed ?? 0) > 0);
  return (
    <>
      {maps.map(([stepId, step]) => (
        <div key={stepId} class="banner elements-failed" role="status">
          <StatusIcon status="failed" bare />
          <div class="banner-text">
            <p>
              {count(step.items!.failed)} of {count(step.items!.total)} elements of{" "}
              <button type="button" class="link" onClick={() => choose(stepId)}>
                {stepId}
              </button>{" "}
              failed
              <FirstError runId={run.run_id} stepId={stepId} />
            </p>
          </div>
        </div>
      ))}
    </>
  );
}

/** The error of the first element that has failed. */
function FirstError({ runId, stepId }: { runId: string; stepId: string }) {
  const [error, setError] = useState("");
  useEffect(() => {
    const abort = new AbortController();
    get<MapItem[]>(`/runs/${part(runId)}/steps/${part(stepId)}/items${query({ status: "failed", limit: 1 })}`, abort.signal)
      .then(([first]) => setError(first?.error ?? ""))
      .catch(() => undefined);
    return () => abort.abort();
  }, [runId, stepId]);
  return error === "" ? null : <span class="elements-error">, first: {error.slice(0, 300)}</span>;
}
