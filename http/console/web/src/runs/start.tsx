/** Starts a run: of a workflow, with an input from a form, as JSON or of a former run, and with labels. */

import { useEffect, useState } from "preact/hooks";
import { Dialog, quoted, type Command } from "../parts/dialog";
import { get, part, post } from "../service/requests";
import { usePolled } from "../service/polled";
import type { Run, Workflow } from "../service/types";
import { go } from "../shell/router";
import { defaults, hasForm, SchemaForm, valueOf, type Schema, type Typed } from "./form";

interface Props {
  workflows: readonly string[];
  /** The workflow that is chosen at first. */
  chosen: string;
  /** The run whose input stands there at first. */
  like?: string;
  close: () => void;
}

type Way = "form" | "json" | "run";

export function StartRun({ workflows, chosen, like = "", close }: Props) {
  const [workflow, setWorkflow] = useState(chosen || workflows[0] || "");
  const definition = usePolled<Workflow>(workflow === "" ? null : `/workflows/${part(workflow)}`);
  const schema = definition.data?.name === workflow ? (definition.data.input_schema as Schema | undefined) : undefined;
  const formed = hasForm(schema);
  const [way, setWay] = useState<Way>(like === "" ? "form" : "run");
  const [typed, setTyped] = useState<Typed>({});
  const [json, setJson] = useState("");
  const [former, setFormer] = useState(like);
  const [problem, setProblem] = useState<string | null>(null);
  const [labels, setLabels] = useState("");
  useEffect(() => void (like !== "" && takeOver()), []);
  useEffect(() => setTyped(formed ? defaults(schema) : {}), [definition.data?.name, definition.data?.version]);
  const shown: Way = way === "form" && !formed ? "json" : way;

  /** Throws an Error for what is no input. */
  function input(): unknown {
    if (shown === "form") return valueOf(schema!, typed);
    if (json.trim() === "") return null;
    try {
      return JSON.parse(json) as unknown;
    } catch (problem) {
      throw new Error(`The input is no JSON: ${(problem as Error).message}`);
    }
  }

  /** The request; where the input is no value yet, with what was typed. */
  function request(): Record<string, unknown> {
    const found = labelsOf(labels);
    return { workflow, input: input(), ...(Object.keys(found).length > 0 ? { labels: found } : {}) };
  }

  async function carryOut(): Promise<void> {
    const started = await post<{ run_id: string }>("/runs", request());
    go(`/runs/${part(started.run_id)}`);
  }

  async function takeOver(): Promise<void> {
    const run = await get<Run>(`/runs/${part(former.trim())}`).catch((problem: Error) => problem);
    setProblem(run instanceof Error ? run.message : null);
    if (run instanceof Error) return;
    setWorkflow(run.workflow_id);
    setJson(JSON.stringify(run.input ?? null, null, 2));
    setLabels(Object.entries(run.labels ?? {}).map(([key, value]) => `${key}:${value}`).join("\n"));
    setWay("json");
  }

  return (
    <Dialog title="Start a run" action="Start" command={commandOf(request, workflow)} carryOut={carryOut} close={close}>
      <label>
        Workflow
        <select value={workflow} onChange={(event) => setWorkflow(event.currentTarget.value)}>
          {workflows.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <div class="ways" role="group" aria-label="Where the input comes from">
        {formed && <WayButton way="form" label="Form" shown={shown} choose={setWay} />}
        <WayButton
          way="json"
          label="JSON"
          shown={shown}
          choose={() => {
            if (shown === "form" && json === "") setJson(JSON.stringify(attempt(() => valueOf(schema!, typed)) ?? {}, null, 2));
            setWay("json");
          }}
        />
        <WayButton way="run" label="As a former run" shown={shown} choose={setWay} />
      </div>
      {shown === "form" && <SchemaForm schema={schema!} typed={typed} change={setTyped} />}
      {shown === "json" && (
        <label>
          Input, as JSON
          <textarea rows={7} spellcheck={false} placeholder="null" value={json} onInput={(event) => setJson(event.currentTarget.value)} />
        </label>
      )}
      {shown === "run" && (
        <label>
          Id of a run
          <span class="former">
            <input class="mono" value={former} placeholder="01a1fbd4e22e73c2b60e9754e7b7a067" onInput={(event) => setFormer(event.currentTarget.value)} />
            <button type="button" disabled={former.trim() === ""} onClick={() => void takeOver()}>
              Take its input
            </button>
          </span>
        </label>
      )}
      {shown === "run" && problem !== null && (
        <p class="error-text" role="alert">
          {problem}
        </p>
      )}
      <label>
        Labels, one a line, such as team:payments
        <textarea rows={2} spellcheck={false} value={labels} onInput={(event) => setLabels(event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}

function WayButton({ way, label, shown, choose }: { way: Way; label: string; shown: Way; choose: (way: Way) => void }) {
  return (
    <button type="button" class="view" aria-pressed={way === shown} onClick={() => choose(way)}>
      {label}
    </button>
  );
}

/** Throws an Error for a line without a colon. */
function labelsOf(text: string): Record<string, string> {
  const lines = text.split("\n").map((line) => line.trim());
  return Object.fromEntries(
    lines.filter((line) => line !== "").map((line) => {
      const colon = line.indexOf(":");
      if (colon < 1) throw new Error(`A label has a key and a value, such as team:payments; this has none: ${line}`);
      return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
    }),
  );
}

function attempt<T>(make: () => T): T | null {
  try {
    return make();
  } catch {
    return null;
  }
}

function commandOf(request: () => Record<string, unknown>, workflow: string): Command {
  const body = attempt(request) ?? { workflow };
  const labels = Object.entries((body["labels"] as Record<string, string> | undefined) ?? {}).map(([key, value]) => ` --label ${quoted(`${key}=${value}`)}`);
  const given = body["input"] === null || body["input"] === undefined ? "" : ` --input ${quoted(JSON.stringify(body["input"]))}`;
  return { method: "POST", path: "/runs", body, cli: `run start ${quoted(workflow)}${given}${labels.join("")}` };
}
