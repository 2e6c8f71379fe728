/** Deletes a workflow, after a question. What still needs it is named by the service, and may be overruled. */

import { useState } from "preact/hooks";
import { Dialog, type Command } from "../parts/dialog";
import { part, Refused, send } from "../service/requests";
import { go } from "../shell/router";

export function Delete({ name, close }: { name: string; close: () => void }) {
  const [force, setForce] = useState(false);
  const [needed, setNeeded] = useState<string | null>(null);
  const command: Command = {
    method: "DELETE",
    path: `/workflows/${part(name)}${force ? "?force=true" : ""}`,
    cli: `workflow delete ${name}${force ? " --force" : ""}`,
  };
  async function carryOut(): Promise<void> {
    try {
      await send(command.path, { method: "DELETE" });
    } catch (problem) {
      if (problem instanceof Refused && problem.status === 409) setNeeded(problem.message);
      throw problem;
    }
    go("/workflows");
  }
  return (
    <Dialog title={`Delete the workflow ${name}?`} action="Delete" danger command={command} carryOut={carryOut} close={close}>
      <p>All its versions go. Runs that there are keep their definitions.</p>
      {needed !== null && (
        <label class="check">
          <input type="checkbox" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} /> Delete it all the same
        </label>
      )}
    </Dialog>
  );
}
