/** What can be done with a run, each behind a question that shows the same as curl and on the command line. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { DecisionDialog } from "../approvals/decision";
import { Dialog, quoted, type Command } from "../parts/dialog";
import { part, post } from "../service/requests";
import type { Run } from "../service/types";
import { may } from "../shell/session";
import { go } from "../shell/router";
import { ENDED, type RunStore } from "./store";

type Name = "cancel" | "pause" | "resume" | "retry" | "rerun" | "signal";

interface Action {
  readonly name: Name;
  readonly label: string;
  readonly title: string;
  readonly danger?: boolean;
  fits(run: Run): boolean;
}

const ACTIONS: readonly Action[] = [
  { name: "pause", label: "Pause", title: "Pause this run?", fits: (run) => !ENDED.has(run.status) && !run.paused_at },
  { name: "resume", label: "Resume", title: "Let this run go on?", fits: (run) => !ENDED.has(run.status) && Boolean(run.paused_at) },
  { name: "retry", label: "Retry", title: "Replay this run from the step that failed?", fits: (run) => run.status === "failed" },
  { name: "rerun", label: "Rerun…", title: "Start a new run of this one", fits: (run) => ENDED.has(run.status) },
  { name: "signal", label: "Signal…", title: "Send a signal", fits: (run) => !ENDED.has(run.status) },
  { name: "cancel", label: "Cancel…", title: "Cancel this run?", danger: true, fits: (run) => !ENDED.has(run.status) && run.status !== "compensating" },
];

export function Actions({ run, store, more }: { run: Run; store: RunStore; more: ComponentChildren }) {
  const [open, setOpen] = useState<Action | null>(null);
  if (!may("operate") || run.imported) return <div class="actions">{more}</div>;
  return (
    <div class="actions">
      {more}
      <Decisions run={run} store={store} />
      {ACTIONS.filter((action) => action.fits(run)).map((action) => (
        <button key={action.name} type="button" class={action.danger ? "danger-quiet" : ""} onClick={() => setOpen(action)}>
          {action.label}
        </button>
      ))}
      {open !== null && <Question action={open} run={run} store={store} close={() => setOpen(null)} />}
    </div>
  );
}

/** For the step that waits for a decision, if there is one. */
function Decisions({ run, store }: { run: Run; store: RunStore }) {
  const [open, setOpen] = useState<"approve" | "reject" | null>(null);
  const waiting = store.explanation.value?.waiting.find((one) => one.reason === "waiting_approval")?.step_id;
  if (!waiting || ENDED.has(run.status)) return null;
  return (
    <>
      <button type="button" class="primary" onClick={() => setOpen("approve")}>
        Approve…
      </button>
      <button type="button" class="danger-quiet" onClick={() => setOpen("reject")}>
        Reject…
      </button>
      {open !== null && <DecisionDialog runId={run.run_id} stepId={waiting} action={open} done={() => store.refresh()} close={() => setOpen(null)} />}
    </>
  );
}

function Question({ action, run, store, close }: { action: Action; run: Run; store: RunStore; close: () => void }) {
  const [reason, setReason] = useState("");
  const [compensate, setCompensate] = useState(false);
  const [children, setChildren] = useState(false);
  const [from, setFrom] = useState("");
  const [latest, setLatest] = useState(false);
  const [name, setName] = useState("");
  const [body, setBody] = useState("");
  const command = commandOf(action.name, run, { reason, compensate, children, from, latest, name, body });

  async function carryOut(): Promise<void> {
    const answer = await post<{ run_id?: string }>(command.path, command.body);
    if (action.name === "rerun" && answer.run_id !== undefined) go(`/runs/${part(answer.run_id)}`);
    else store.refresh();
  }

  return (
    <Dialog title={action.title} action={action.label.replace("…", "")} danger={action.danger ?? false} command={command} carryOut={carryOut} close={close}>
      {action.name === "cancel" && (
        <>
          <label>
            Reason <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
          </label>
          <Check text="Undo the steps that have completed first (compensate)" value={compensate} set={setCompensate} />
        </>
      )}
      {(action.name === "pause" || action.name === "resume") && (
        <>
          {action.name === "pause" && <p>What runs finishes, and nothing new begins until the run is resumed.</p>}
          <Check text="Also the child runs that it waits for" value={children} set={setChildren} />
        </>
      )}
      {action.name === "retry" && <p>Completed steps stay completed. Failed and cancelled steps are executed again.</p>}
      {action.name === "rerun" && (
        <>
          <label>
            From step
            <select value={from} onChange={(event) => setFrom(event.currentTarget.value)}>
              <option value="">the beginning</option>
              {Object.entries(run.steps)
                .filter(([, step]) => !step.handles)
                .map(([id]) => (
                  <option key={id} value={id}>
                    {id}
                  </option>
                ))}
            </select>
          </label>
          <Check text="With the newest definition" value={latest} set={setLatest} />
        </>
      )}
      {action.name === "signal" && (
        <>
          <label>
            Name <input required value={name} onInput={(event) => setName(event.currentTarget.value)} />
          </label>
          <label>
            Body <textarea rows={4} value={body} onInput={(event) => setBody(event.currentTarget.value)} />
          </label>
        </>
      )}
    </Dialog>
  );
}

interface Answers {
  reason: string;
  compensate: boolean;
  children: boolean;
  from: string;
  latest: boolean;
  name: string;
  body: string;
}

function commandOf(name: Name, run: Run, given: Answers): Command {
  const path = `/runs/${part(run.run_id)}`;
  const flag = (wanted: boolean, text: string): string => (wanted ? ` ${text}` : "");
  switch (name) {
    case "cancel":
      return {
        method: "POST",
        path: `${path}/cancel`,
        body: { ...(given.reason && { reason: given.reason }), ...(given.compensate && { compensate: true }) },
        cli: `run cancel ${run.run_id}${given.reason && ` --reason ${quoted(given.reason)}`}${flag(given.compensate, "--compensate")}`,
      };
    case "pause":
    case "resume":
      return {
        method: "POST",
        path: `${path}/${name}`,
        body: given.children ? { children: true } : {},
        cli: `run ${name} ${run.run_id}${flag(given.children, "--children")}`,
      };
    case "retry":
      return { method: "POST", path: `${path}/retry`, body: {}, cli: `run retry ${run.run_id}` };
    case "rerun":
      return {
        method: "POST",
        path: `${path}/rerun`,
        body: { ...(given.from && { from: given.from }), ...(given.latest && { latest: true }) },
        cli: `run rerun ${run.run_id}${given.from && ` --from ${quoted(given.from)}`}${flag(given.latest, "--latest")}`,
      };
    case "signal":
      return {
        method: "POST",
        path: `${path}/signal/${part(given.name || "NAME")}`,
        body: given.body,
        cli: `run signal ${run.run_id} ${quoted(given.name || "NAME")}${given.body && ` --input ${quoted(given.body)}`}`,
      };
  }
}

function Check({ text, value, set }: { text: string; value: boolean; set: (value: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(event) => set(event.currentTarget.checked)} /> {text}
    </label>
  );
}
