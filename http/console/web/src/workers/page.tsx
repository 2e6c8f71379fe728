/** The workers that are there, and the queues of tasks: what waits, since when, and for whom. */

import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { Empty, Problem, Waiting } from "../parts/messages";
import { count, plural } from "../parts/sizes";
import { Elapsed } from "../parts/time";
import { usePolled } from "../service/polled";
import { query } from "../service/requests";
import type { TaskQueue, Worker } from "../service/types";
import { address, place, setParams } from "../shell/router";
import { useMetrics } from "../system/metrics";
import { perMinute, shownRate } from "./rates";
import { byNeed, teams } from "./served";
import { TeamTable } from "./team";

const EVERY_MS = 2000;

export function WorkersPage() {
  const workers = usePolled<Worker[]>("/workers", EVERY_MS);
  const queues = usePolled<TaskQueue[]>("/tasks", EVERY_MS);
  const rates = perMinute(useMetrics(EVERY_MS).readings);
  const problem = workers.problem ?? queues.problem;
  if (workers.data === null || queues.data === null) return problem === null ? <Waiting what="workers" /> : <Problem problem={problem} />;
  const text = (place.value.params.get("q") ?? "").toLowerCase();
  const shownQueues = byNeed(queues.data).filter((queue) => `${queue.task} ${queue.worker_group ?? ""}`.toLowerCase().includes(text));
  const shownTeams = teams(workers.data, queues.data).filter((team) => JSON.stringify([team.types, team.workers]).toLowerCase().includes(text));
  return (
    <div class="list-page">
      <header class="list-head">
        <h1>Workers</h1>
        <span class="quiet">{count(workers.data.length)}</span>
        {problem !== null && <span class="badge warn">connection lost, trying again</span>}
        <input
          type="search"
          aria-label="Find task types and workers"
          placeholder="Find a task type or worker"
          value={place.value.params.get("q") ?? ""}
          onInput={(event) => setParams({ q: event.currentTarget.value }, { replace: true })}
        />
      </header>
      {queues.data.length === 0 && workers.data.length === 0 ? (
        <Empty title="No worker is there yet.">
          <p>A worker is a process of yours that carries out tasks. Define a task type in Python, or in any language over HTTP, and start it:</p>
          <pre class="example">{EXAMPLE}</pre>
        </Empty>
      ) : (
        <>
          <Unserved queues={shownQueues.filter((queue) => queue.workers === 0 && queue.waiting > 0)} />
          <h2 class="list-title">Task types</h2>
          <Queues queues={shownQueues} rates={rates} />
          <h2 class="list-title">Who serves them</h2>
          {shownTeams.length === 0 && <p class="quiet">No worker {text === "" ? "is registered now." : "is like that."}</p>}
          {shownTeams.map((team) => (
            <TeamTable key={team.key} team={team} rates={rates} />
          ))}
        </>
      )}
    </div>
  );
}

const EXAMPLE = `from penstock.worker import Worker

worker = Worker()

@worker.task("hello")
def hello(name: str) -> str:
    return f"Hello, {name}!"

worker.run()`;

function Unserved({ queues }: { queues: readonly TaskQueue[] }) {
  if (queues.length === 0) return null;
  const tasks = queues.reduce((sum, queue) => sum + queue.waiting, 0);
  return (
    <div class="banner act" role="status">
      <div class="banner-text">
        <strong>
          {plural(tasks, "task")} {tasks === 1 ? "waits" : "wait"} for a worker that is not there.
        </strong>{" "}
        Start a worker that serves{" "}
        {queues.slice(0, 3).map((queue, index) => (
          <Fragment key={`${queue.worker_group ?? ""} ${queue.task}`}>
            {index > 0 && ", "}
            <code>{queue.task}</code>
            {queue.worker_group && (
              <>
                {" "}
                in group <code>{queue.worker_group}</code>
              </>
            )}
          </Fragment>
        ))}
        {queues.length > 3 && ` and ${queues.length - 3} more types`}: its tasks are given out as soon as it is connected, and nothing is lost until then.
        If one should be there, look at its log, and whether it has the address of this service.
      </div>
    </div>
  );
}

const IDLE_SHOWN = 5;

/** Those without tasks are folded where there are many: what waits is what one looks for. */
type Rates = ReadonlyMap<string, number> | null;

function Queues({ queues, rates }: { queues: readonly TaskQueue[]; rates: Rates }) {
  const [all, setAll] = useState(false);
  if (queues.length === 0) return <p class="quiet">No task type is like that.</p>;
  const needed = queues.filter((queue) => queue.workers === 0 || queue.waiting + queue.in_hand > 0).length;
  const shown = all || queues.length <= needed + IDLE_SHOWN ? queues : queues.slice(0, needed);
  return (
    <>
      {shown.length > 0 && <QueueTable queues={shown} rates={rates} />}
      {shown.length < queues.length && (
        <button type="button" class="link fold-out" onClick={() => setAll(true)}>
          {plural(queues.length - shown.length, "task type")} without tasks
        </button>
      )}
    </>
  );
}

function QueueTable({ queues, rates }: { queues: readonly TaskQueue[]; rates: Rates }) {
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label="Task types">
      <table class="list queues stack">
        <thead>
          <tr>
            <th>Task type</th>
            <th class="right" title="Tasks that no worker has">
              Waiting
            </th>
            <th class="right" title="Tasks that a worker has, and has not answered">
              In hand
            </th>
            <th class="right" title="Since when the oldest task is there, waiting or in hand">
              Oldest
            </th>
            <th class="right" title="Tasks that ended in the last minute, while this page was open">
              Per minute
            </th>
            <th class="right">Workers</th>
          </tr>
        </thead>
        <tbody>
          {queues.map((queue) => (
            <tr key={`${queue.worker_group ?? ""} ${queue.task}`} class={queue.workers === 0 ? "nobody" : ""}>
              <td class="grow">
                <span class="strong">{queue.task}</span>
                {queue.worker_group && <span class="badge">group {queue.worker_group}</span>}{" "}
                {queue.workers === 0 && <span class={queue.waiting > 0 ? "badge bad" : "badge"}>nobody serves it</span>}
              </td>
              <td class="right number" data-label="Waiting">
                {queue.waiting > 0 ? <a href={address(`/runs${query({ status: "running", held_up: queue.workers === 0 ? "true" : null })}`)}>{count(queue.waiting)}</a> : <None />}
              </td>
              <td class="right number" data-label="In hand">{queue.in_hand > 0 ? count(queue.in_hand) : <None />}</td>
              <td class="right nowrap" data-label="Oldest">{queue.oldest_at ? <Elapsed from={queue.oldest_at} /> : <None />}</td>
              <td class="right number" data-label="Per minute">{rates === null ? <None /> : shownRate(rates.get(queue.task) ?? 0)}</td>
              <td class="right number" data-label="Workers">{queue.workers > 0 ? count(queue.workers) : <span class="bad">0</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const None = () => <span class="none">–</span>;
