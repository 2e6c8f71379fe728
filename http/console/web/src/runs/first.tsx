/** What a service without any run shows: what to type to see the first one. */

import { Copy } from "../parts/copy";
import { may } from "../shell/session";

interface Props {
  workflows: readonly string[];
  start: () => void;
}

export function FirstRun({ workflows, start }: Props) {
  const first = workflows[0];
  return (
    <div class="first-run">
      <h1>No run yet</h1>
      <p>
        A run is one execution of a workflow. {first === undefined ? "Register a workflow and start it:" : "Workflows are there; start one:"}
      </p>
      <ol>
        {first === undefined && (
          <li>
            <span>Register a workflow with one step</span>
            <Command text={`curl -s ${location.origin}/workflows -d '{"name": "greet", "steps": [{"id": "hello", "task": "hello"}]}'`} />
          </li>
        )}
        <li>
          <span>Start a run of it</span>
          <Command text={`curl -s ${location.origin}/runs -d '{"workflow": "${first ?? "greet"}", "input": "Ada"}'`} />
        </li>
      </ol>
      <p class="quiet">It shows up here at once, and says what it waits for: without a worker, for one.</p>
      <p>Or have it all shown by one command, with a worker that carries the steps out:</p>
      <Command text="penstock demo" />
      {first !== undefined && may("operate") && (
        <p>
          <button type="button" class="primary" onClick={start}>
            Start a run
          </button>
        </p>
      )}
    </div>
  );
}

function Command({ text }: { text: string }) {
  return (
    <div class="first-command">
      <Copy text={text} label="Copy the command" />
    </div>
  );
}
