/** What can be done with the runs that are selected, or with all that match the filter. */

import { useEffect, useState } from "preact/hooks";
import { Dialog, quoted, type Command } from "../parts/dialog";
import { count, plural } from "../parts/sizes";
import { part, post, Refused } from "../service/requests";
import type { RunSummary } from "../service/types";
import { may } from "../shell/session";
import { cliOptions, selected, type Filter } from "./filter";
import type { RunList } from "./list";

const AT_ONCE = 6;
const PART_RUNS = 1000;
const SHOWN_MAX = 5;
const NEEDS_ONE_WORKFLOW = "rerun";
const ENDED = new Set(["completed", "failed", "cancelled"]);

interface Action {
  readonly name: string;
  readonly verb: string;
  readonly past: string;
  readonly danger?: boolean;
  /** Whether it can be done with a run. */
  readonly fits: (run: RunSummary) => boolean;
  /** The statuses of a filter that it goes with, and what the service calls them; "": of all. */
  readonly statuses: Readonly<Record<string, string>>;
  readonly more?: Record<string, unknown>;
}

const OPEN = { "": "all", running: "running", scheduled: "pending", pending: "pending" };
const ACTIONS: readonly Action[] = [
  { name: "cancel", verb: "Cancel", past: "cancelled", danger: true, fits: (run) => !ENDED.has(run.status), statuses: OPEN },
  { name: "pause", verb: "Pause", past: "paused", fits: (run) => !ENDED.has(run.status) && !run.paused_at, statuses: OPEN },
  { name: "resume", verb: "Resume", past: "resumed", fits: (run) => Boolean(run.paused_at), statuses: OPEN },
  { name: "retry", verb: "Retry", past: "retried", fits: (run) => run.status === "failed", statuses: { "": "", failed: "" }, more: { mode: "replay" } },
  {
    name: "rerun",
    verb: "Rerun",
    past: "started again",
    fits: (run) => ENDED.has(run.status),
    statuses: { "": "all", failed: "failed", completed: "completed", cancelled: "cancelled" },
  },
];

interface Props {
  list: RunList;
  filter: Filter;
  times: { after: string; before: string };
  /** How many runs match; null where nobody has counted them. */
  total: number | null;
  /** There may be more. */
  isLeast: boolean;
}

type Scope = "chosen" | "matching";

export function SelectionBar({ list, filter, times, total, isLeast }: Props) {
  const [doing, setDoing] = useState<Action | null>(null);
  const [scope, setScope] = useState<Scope>("chosen");
  const ids = selected.value;
  useEffect(() => setScope("chosen"), [ids.size === 0]);
  if (ids.size === 0 || !may("operate")) return null;
  const runs = list.rows.value.map((row) => row.run).filter((run) => ids.has(run.run_id));
  const why = whyNotAll(filter);
  const isAll = scope === "matching" && why === null;
  const fitting = (action: Action): boolean => (isAll ? action.statuses[filter.status] !== undefined : runs.some(action.fits));

  const isMore = total !== null && (total > ids.size || isLeast);
  const number = total === null ? "" : `${count(Math.max(total, ids.size))}${isLeast ? " or more" : ""} `;

  function over(): void {
    setDoing(null);
  }

  return (
    <div class="selection" role="region" aria-label="Selected runs">
      <span class="selection-count">{isAll ? `All ${number}that match` : plural(ids.size, "run")}</span>
      {isMore && (
        <button
          type="button"
          class="link"
          disabled={why !== null}
          title={why ?? undefined}
          onClick={() => setScope(isAll ? "chosen" : "matching")}
        >
          {isAll ? `Only the ${count(ids.size)} selected` : `All ${number}that match`}
        </button>
      )}
      {why !== null && isMore && <span class="selection-why quiet">{why}</span>}
      <span class="selection-actions">
        {ACTIONS.filter((action) => fitting(action) && !(isAll && action.name === NEEDS_ONE_WORKFLOW && filter.workflow === "")).map((action) => (
          <button key={action.name} type="button" class={action.danger ? "danger-quiet" : ""} onClick={() => setDoing(action)}>
            {action.verb}
          </button>
        ))}
        <button type="button" class="quiet-button" onClick={() => (selected.value = new Set())}>
          Clear
        </button>
      </span>
      {doing !== null && isAll && <OfAll action={doing} filter={filter} times={times} close={over} done={() => list.refresh()} />}
      {doing !== null && !isAll && <OfChosen action={doing} runs={runs} close={over} done={() => list.refresh()} />}
    </div>
  );
}

/** Why the service cannot be asked for all that match: what holds runs up is in no index. */
const whyNotAll = (filter: Filter): string | null => (filter.heldUp ? "To take all, filter by something else than what is held up." : null);

interface ChosenProps {
  action: Action;
  runs: readonly RunSummary[];
  close: () => void;
  done: () => void;
}

function OfChosen({ action, runs, close, done }: ChosenProps) {
  const [fitting] = useState(() => runs.filter(action.fits));
  const [finished, setFinished] = useState(0);
  const others = runs.length - fitting.length;
  const ids = fitting.map((run) => run.run_id);
  const isOne = action.name === "rerun"; // takes one id

  const together: Record<string, unknown> = { run_ids: ids, ...action.more };

  /** In one request, where nothing must be said of each run. */
  async function allTogether(): Promise<void> {
    const found = await post<BulkAnswer>(`/runs/${action.name}`, together);
    setFinished(found.total - found.skipped.length);
    done();
    if (found.skipped.length > 0) throw new Error(`${plural(found.skipped.length, "run was", "runs were")} not ${action.past}:\n${found.skipped.map((one) => `${one.run_id}: ${one.reason}`).join("\n")}`);
    selected.value = new Set();
  }

  async function carryOut(): Promise<void> {
    if (!isOne && ids.length > 1 && ids.length <= PART_RUNS) return allTogether();
    const problems: string[] = [];
    const waiting = [...ids];
    async function next(): Promise<void> {
      for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
        try {
          await post(`/runs/${part(id)}/${action.name}`, action.name === "retry" ? { mode: "replay" } : {});
        } catch (problem) {
          if (!(problem instanceof Refused)) throw problem;
          problems.push(`${id}: ${problem.message}`);
        }
        setFinished((before) => before + 1);
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, next));
    done();
    if (problems.length > 0) throw new Error(`${plural(problems.length, "run was", "runs were")} not ${action.past}:\n${problems.join("\n")}`);
    selected.value = new Set();
  }

  const cli = isOne ? ids.map((id) => `run rerun ${id}`).join(" && penstock ") : `run ${action.name} ${ids.join(" ")}`;
  const command: Command =
    !isOne && ids.length > 1
      ? { method: "POST", path: `/runs/${action.name}`, cli, body: together }
      : { method: "POST", path: `/runs/${ids[0] ?? ""}/${action.name}`, cli, ...(action.name === "retry" ? { body: { mode: "replay" } } : {}) };
  return (
    <Dialog title={`${action.verb} ${plural(fitting.length, "run")}`} action={`${action.verb} ${plural(fitting.length, "run")}`} danger={action.danger === true} command={command} carryOut={carryOut} close={close}>
      <RunNames runs={fitting} />
      {others > 0 && <p class="quiet">{plural(others, "selected run")} cannot be {action.past} and {others === 1 ? "is" : "are"} left out.</p>}
      {finished > 0 && <Progress done={finished} total={fitting.length} />}
    </Dialog>
  );
}

function RunNames({ runs }: { runs: readonly RunSummary[] }) {
  return (
    <ul class="run-names">
      {runs.slice(0, SHOWN_MAX).map((run) => (
        <li key={run.run_id}>
          {run.workflow_id} <span class="mono quiet">{run.run_id}</span>
        </li>
      ))}
      {runs.length > SHOWN_MAX && <li class="quiet">and {count(runs.length - SHOWN_MAX)} more</li>}
    </ul>
  );
}

interface BulkAnswer {
  readonly total: number;
  readonly skipped: readonly { run_id: string; reason: string }[];
  readonly next?: string;
  readonly remaining?: number;
}

interface AllProps {
  action: Action;
  filter: Filter;
  times: { after: string; before: string };
  close: () => void;
  done: () => void;
}

/** First asks what would be done, then does it, a thousand runs at a time. */
function OfAll({ action, filter, times, close, done }: AllProps) {
  const [counted, setCounted] = useState<{ total: number; skipped: number } | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [finished, setFinished] = useState(0);
  // Runs that start meanwhile are not among those that were counted.
  const [before] = useState(() => times.before || new Date().toISOString());
  const status = action.statuses[filter.status];
  const body: Record<string, unknown> = { ...action.more };
  if (filter.workflow !== "") body["workflow_id"] = filter.workflow;
  if (filter.trigger !== "") body["trigger"] = filter.trigger;
  if (filter.parent !== "") body["parent"] = filter.parent;
  if (filter.text !== "") body["q"] = filter.text;
  if (status) body["status"] = status;
  if (times.after !== "") body["after"] = times.after;
  body["before"] = before;
  if (filter.labels.length > 0) body["labels"] = Object.fromEntries(filter.labels.map((one) => [one.slice(0, one.indexOf(":")), one.slice(one.indexOf(":") + 1)]));
  if (filter.paused && action.statuses === OPEN) body["paused"] = true;
  const path = `/runs/${action.name}`;

  useEffect(() => {
    void post<BulkAnswer>(path, { ...body, limit: PART_RUNS, dry_run: true }).then(
      (found) => setCounted({ total: found.total + (found.remaining ?? 0), skipped: found.skipped.length }),
      (error: Error) => setProblem(error.message),
    );
  }, []);

  async function carryOut(): Promise<void> {
    let cursor: string | undefined;
    do {
      const found: BulkAnswer = await post<BulkAnswer>(path, { ...body, limit: PART_RUNS, ...(cursor === undefined ? {} : { cursor }) });
      setFinished((sum) => sum + found.total);
      cursor = found.next;
    } while (cursor !== undefined);
    selected.value = new Set();
    done();
  }

  const options = cliOptions(filter, { after: times.after, before }).map(([name, value]) => `${name} ${quoted(value)}`);
  if (status) options.push(`--status ${status}`);
  if (action.name === "retry") options.push("--mode replay");
  if (body["paused"]) options.push("--paused");
  const command: Command = { method: "POST", path, body, cli: `run ${action.name} ${options.join(" ")}` };
  const what = counted === null ? "runs" : plural(counted.total, "run");
  return (
    <Dialog title={`${action.verb} all that match`} action={`${action.verb} ${what}`} danger={action.danger === true} command={command} carryOut={carryOut} close={close}>
      {counted === null && problem === null && <p role="status">Counting the runs that this is about …</p>}
      {problem !== null && (
        <pre class="error-text" role="alert">
          {problem}
        </pre>
      )}
      {counted !== null && (
        <p>
          <strong>{what}</strong> of {filter.workflow === "" ? "all workflows" : filter.workflow} would be {action.past}
          {counted.skipped > 0 && `, ${count(counted.skipped)} of the first thousand skipped`}.{counted.total > PART_RUNS && ` ${count(PART_RUNS)} at a time.`}
        </p>
      )}
      {finished > 0 && counted !== null && <Progress done={finished} total={counted.total} />}
    </Dialog>
  );
}

function Progress({ done, total }: { done: number; total: number }) {
  return (
    <p role="status">
      <progress value={done} max={total} aria-label="Done" /> {count(done)} of {count(total)}
    </p>
  );
}
