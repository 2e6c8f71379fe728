/** What can be done with one step: the next attempt now, completion by hand, and a decision where one is wanted. */

import { useState } from "preact/hooks";
import { DecisionDialog } from "../../approvals/decision";
import { Dialog, quoted } from "../../parts/dialog";
import { part, post } from "../../service/requests";
import type { Run, Step } from "../../service/types";
import { may } from "../../shell/session";
import { ENDED, type RunStore } from "../store";

interface Props {
  run: Run;
  stepId: string;
  step: Step;
  /** The kind of the step, as the graph has it. */
  type: string;
  store: RunStore;
}

type Open = "retry" | "skip" | "approve" | "reject";

export function StepActions({ run, stepId, step, type, store }: Props) {
  const [open, setOpen] = useState<Open | null>(null);
  if (!may("operate") || run.imported || run.status === "completed" || run.status === "cancelled") return null;
  const isOver = ["completed", "skipped", "recovered"].includes(step.status);
  const canRetry = !isOver && (step.status === "failed" || (step.status === "queued" && step.attempts > 0));
  const canSkip = !isOver && run.status !== "compensating" && !(ENDED.has(run.status) && step.status !== "failed");
  const canDecide = type === "approval" && step.status === "running";
  const close = () => setOpen(null);
  return (
    <span class="step-actions">
      {canDecide && (
        <>
          <button type="button" class="primary" onClick={() => setOpen("approve")}>
            Approve…
          </button>
          <button type="button" class="danger-quiet" onClick={() => setOpen("reject")}>
            Reject…
          </button>
        </>
      )}
      {canRetry && (
        <button type="button" onClick={() => setOpen("retry")}>
          Retry now
        </button>
      )}
      {canSkip && (
        <button type="button" onClick={() => setOpen("skip")}>
          Complete by hand…
        </button>
      )}
      {open === "retry" && <RetryDialog run={run} stepId={stepId} store={store} close={close} />}
      {open === "skip" && <SkipDialog run={run} stepId={stepId} store={store} close={close} />}
      {(open === "approve" || open === "reject") && <DecisionDialog runId={run.run_id} stepId={stepId} action={open} done={() => store.refresh()} close={close} />}
    </span>
  );
}

interface DialogProps {
  run: Run;
  stepId: string;
  store: RunStore;
  close: () => void;
}

const pathOf = (run: Run, stepId: string): string => `/runs/${part(run.run_id)}/steps/${part(stepId)}`;

function RetryDialog({ run, stepId, store, close }: DialogProps) {
  const path = `${pathOf(run, stepId)}/retry`;
  return (
    <Dialog
      title={`Begin the next attempt of ${stepId} now?`}
      action="Retry"
      command={{ method: "POST", path, cli: `run step retry ${run.run_id} ${quoted(stepId)}` }}
      carryOut={async () => {
        await post(path);
        store.refresh();
      }}
      close={close}
    />
  );
}

function SkipDialog({ run, stepId, store, close }: DialogProps) {
  const [output, setOutput] = useState("null");
  const path = `${pathOf(run, stepId)}/skip`;
  return (
    <Dialog
      title={`Complete ${stepId} by hand?`}
      action="Complete"
      command={{ method: "POST", path, body: `{"output": ${output}}`, cli: `run step skip ${run.run_id} ${quoted(stepId)} --output ${quoted(output)}` }}
      carryOut={async () => {
        await post(path, { output: JSON.parse(output) as unknown });
        store.refresh();
      }}
      close={close}
    >
      <p>What was ordered for it is withdrawn, and the steps after it begin with this output.</p>
      <label>
        Output, as JSON <textarea rows={5} value={output} onInput={(event) => setOutput(event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}
