/** What has failed for good, by reason: to be replayed once its cause is mended, or to be discarded. */

import { useEffect, useState } from "preact/hooks";
import { Empty, Problem, Waiting } from "../parts/messages";
import { count } from "../parts/sizes";
import { shortId } from "../parts/copy";
import { usePolled } from "../service/polled";
import { query } from "../service/requests";
import type { DeadLetter } from "../service/types";
import { place, setParams } from "../shell/router";
import { hidden, sendNow } from "./discarding";
import { LetterPanel } from "./letter";
import { LetterList } from "./list";
import { reasonOf, reasons, type Reason } from "./model";
import { Toast } from "./toast";

const EVERY_MS = 3000;
const PAGE = 100;
const LIST_MAX = 1000;
const REASONS_SHOWN = 8;

export function DeadLettersPage() {
  const params = place.value.params;
  const [task, run, reason, open] = ["task", "run", "reason", "letter"].map((name) => params.get(name) ?? "") as [string, string, string, string];
  const [limit, setLimit] = useState(PAGE);
  const [said, setSaid] = useState<string | null>(null);
  const letters = usePolled<DeadLetter[]>(`/dead-letters${query({ task, run, limit })}`, EVERY_MS);
  useLeaving();
  const isFiltered = task !== "" || run !== "";
  const loaded = (letters.data ?? []).filter((letter) => !hidden.value.has(letter.seq));
  const shown = reason === "" ? loaded : loaded.filter((letter) => reasonOf(letter) === reason);
  const chosen = letters.data?.find((letter) => String(letter.seq) === open && !hidden.value.has(letter.seq));
  return (
    <div class={open === "" ? "list-page" : "list-page with-letter"}>
      <div class="letters-main">
        <header class="list-head">
          <h1>Dead letters</h1>
          {letters.data !== null && (
            <span class="quiet">
              {count(loaded.length)}
              {letters.answer?.next ? "+" : ""}
            </span>
          )}
          {letters.problem !== null && letters.data !== null && <span class="badge warn">{letters.problem.message}</span>}
          {run !== "" && (
            <span class="badge">
              of run {shortId(run)}{" "}
              <button type="button" class="link" onClick={() => setParams({ run: null })}>
                all
              </button>
            </span>
          )}
          <TaskFilter key={task} task={task} known={loaded} />
        </header>
        {letters.data === null ? (
          letters.problem === null ? (
            <Waiting what="dead letters" />
          ) : (
            <Problem problem={letters.problem} />
          )
        ) : loaded.length === 0 ? (
          <Empty title={isFiltered ? "No dead letter is like that." : "There are no dead letters."}>
            {isFiltered ? (
              <button type="button" onClick={() => setParams({ task: null, run: null, reason: null })}>
                Show all
              </button>
            ) : (
              <p>A task that has failed for good, after all its retries, and what cannot be read or cannot start a run, is kept here for 30 days.</p>
            )}
          </Empty>
        ) : (
          <>
            <Reasons found={reasons(loaded)} chosen={reason} />
            <LetterList letters={shown} open={open} refresh={letters.refresh} say={setSaid} />
            {letters.answer?.next && limit < LIST_MAX && (
              <button type="button" class="more" onClick={() => setLimit(Math.min(limit + PAGE, LIST_MAX))}>
                More
              </button>
            )}
          </>
        )}
      </div>
      {open !== "" && <LetterPanel key={open} seq={open} known={chosen} refresh={letters.refresh} say={setSaid} />}
      <Toast said={said} close={() => setSaid(null)} />
    </div>
  );
}

/** What waits to be discarded is discarded at once by whoever leaves. */
function useLeaving(): void {
  useEffect(() => {
    addEventListener("pagehide", sendNow);
    return () => {
      removeEventListener("pagehide", sendNow);
      sendNow();
    };
  }, []);
}

function TaskFilter({ task, known }: { task: string; known: readonly DeadLetter[] }) {
  const tasks = [...new Set(known.map((letter) => letter.task).filter(Boolean))].sort();
  return (
    <>
      <input
        type="search"
        list="dead-letter-tasks"
        aria-label="Task type"
        placeholder="Task type"
        value={task}
        onChange={(event) => setParams({ task: event.currentTarget.value.trim(), reason: null, letter: null })}
      />
      <datalist id="dead-letter-tasks">
        {tasks.map((one) => (
          <option key={one} value={one ?? ""} />
        ))}
      </datalist>
    </>
  );
}

function Reasons({ found, chosen }: { found: readonly Reason[]; chosen: string }) {
  const [all, setAll] = useState(false);
  if (found.length < 2 && chosen === "") return null;
  const shown = all ? found : found.slice(0, REASONS_SHOWN);
  return (
    <div class="reasons" role="group" aria-label="Reasons">
      {shown.map((reason) => (
        <button
          key={reason.text}
          type="button"
          class="reason"
          title={reason.text}
          aria-pressed={reason.text === chosen}
          onClick={() => setParams({ reason: reason.text === chosen ? null : reason.text }, { replace: true })}
        >
          <span class="reason-text">{reason.text}</span>
          <span class="reason-count number">{count(reason.count)}</span>
        </button>
      ))}
      {found.length > shown.length && (
        <button type="button" class="link" onClick={() => setAll(true)}>
          {found.length - shown.length} more reasons
        </button>
      )}
    </div>
  );
}
