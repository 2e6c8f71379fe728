/** A person's decision about a step that waits for one, with a comment. */

import { useState } from "preact/hooks";
import { Dialog, quoted } from "../parts/dialog";
import { part, post } from "../service/requests";

interface Props {
  runId: string;
  stepId: string;
  action: "approve" | "reject";
  /** What the definition says about it. */
  description?: string | null | undefined;
  /** Called when the service has taken it. */
  done: () => void;
  close: () => void;
}

export function DecisionDialog({ runId, stepId, action, description, done, close }: Props) {
  const [comment, setComment] = useState("");
  const path = `/approvals/${part(runId)}/${part(stepId)}`;
  const body = { action, ...(comment && { comment }) };
  return (
    <Dialog
      title={action === "approve" ? `Approve ${stepId}?` : `Reject ${stepId}?`}
      action={action === "approve" ? "Approve" : "Reject"}
      danger={action === "reject"}
      command={{ method: "POST", path, body, cli: `approval ${action} ${runId} ${quoted(stepId)}${comment && ` --comment ${quoted(comment)}`}` }}
      carryOut={async () => {
        await post(path, body);
        done();
      }}
      close={close}
    >
      {description && <p class="told">{description}</p>}
      <label>
        Comment <textarea rows={3} value={comment} onInput={(event) => setComment(event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}
