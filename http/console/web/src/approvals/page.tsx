/** The steps that wait for somebody's decision, those that have waited longest first. */

import { useState } from "preact/hooks";
import { Copy, shortId } from "../parts/copy";
import { Empty, Problem, Waiting } from "../parts/messages";
import { count } from "../parts/sizes";
import { Ago, Elapsed } from "../parts/time";
import { instant, now } from "../parts/times";
import { usePolled } from "../service/polled";
import { part, query } from "../service/requests";
import type { Approval } from "../service/types";
import { address, place, setParams } from "../shell/router";
import { may } from "../shell/session";
import { DecisionDialog } from "./decision";

const EVERY_MS = 2000;
const PAGE = 200;
/** What expires within this time is marked. */
const SOON_MS = 3_600_000;

type Decision = { of: Approval; action: "approve" | "reject" };

export function ApprovalsPage() {
  const workflow = place.value.params.get("workflow") ?? "";
  const [limit, setLimit] = useState(PAGE);
  const [open, setOpen] = useState<Decision | null>(null);
  const waiting = usePolled<Approval[]>(`/approvals${query({ workflow, limit })}`, EVERY_MS);
  if (waiting.data === null) return waiting.problem === null ? <Waiting what="approvals" /> : <Problem problem={waiting.problem} />;
  const sorted = [...waiting.data].sort((one, other) => one.requested_at.localeCompare(other.requested_at));
  return (
    <div class="list-page">
      <header class="list-head">
        <h1>Approvals</h1>
        <span class="quiet">
          {count(sorted.length)}
          {waiting.answer?.next ? "+" : ""}
        </span>
        {waiting.problem !== null && <span class="badge warn">connection lost, trying again</span>}
        {workflow !== "" && (
          <span class="badge">
            of {workflow}{" "}
            <button type="button" class="link" onClick={() => setParams({ workflow: null })}>
              all
            </button>
          </span>
        )}
      </header>
      {sorted.length === 0 ? (
        <Empty title="Nothing waits for a decision.">
          <p>A step of type approval holds its run until somebody approves or rejects it. It is shown here as soon as it does.</p>
        </Empty>
      ) : (
        <ul class="approvals">
          {sorted.map((one) => (
            <Waits key={`${one.run_id} ${one.step_id}`} one={one} decide={(action) => setOpen({ of: one, action })} />
          ))}
        </ul>
      )}
      {waiting.answer?.next && (
        <button type="button" onClick={() => setLimit(Math.min(limit + PAGE, 1000))} disabled={limit >= 1000}>
          More
        </button>
      )}
      {open !== null && (
        <DecisionDialog
          runId={open.of.run_id}
          stepId={open.of.step_id}
          description={open.of.description}
          action={open.action}
          done={waiting.refresh}
          close={() => setOpen(null)}
        />
      )}
    </div>
  );
}

function Waits({ one, decide }: { one: Approval; decide: (action: Decision["action"]) => void }) {
  return (
    <li class="approval">
      <div class="approval-text">
        <h2>{one.description || one.step_id}</h2>
        <div class="approval-of">
          <a href={address(`/workflows/${part(one.workflow_id)}`)}>{one.workflow_id}</a>
          <a class="mono" href={address(`/runs/${part(one.run_id)}`)} title={one.run_id}>
            {shortId(one.run_id)}
          </a>
          <a href={address(`/runs/${part(one.run_id)}?step=${part(one.step_id)}`)}>{one.step_id}</a>
          <Copy text={one.run_id} shown="copy id" label="Copy the run's id" />
        </div>
        {(one.subject || Object.keys(one.metadata ?? {}).length > 0) && (
          <dl class="approval-facts">
            {one.subject && <Fact name="subject" value={one.subject} />}
            {Object.entries(one.metadata ?? {}).map(([name, value]) => (
              <Fact key={name} name={name} value={value} />
            ))}
          </dl>
        )}
      </div>
      <div class="approval-times">
        <span>
          waits <Elapsed from={one.requested_at} />
        </span>
        <Expiry at={one.expires_at} />
      </div>
      {may("operate") && (
        <div class="approval-buttons">
          <button type="button" class="primary" onClick={() => decide("approve")} aria-label={`Approve ${one.step_id}`}>
            Approve…
          </button>
          <button type="button" class="danger-quiet" onClick={() => decide("reject")} aria-label={`Reject ${one.step_id}`}>
            Reject…
          </button>
        </div>
      )}
    </li>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function Expiry({ at }: { at: string }) {
  const soon = instant(at) - now.value < SOON_MS;
  return (
    <span class={soon ? "badge warn" : "quiet"}>
      expires <Ago at={at} />
    </span>
  );
}
