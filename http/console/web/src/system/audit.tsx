/** Who has changed what, and what was refused: newest first, page by page. */

import { useEffect, useState } from "preact/hooks";
import { Empty, Problem, Waiting } from "../parts/messages";
import { count } from "../parts/sizes";
import { Moment } from "../parts/time";
import { send } from "../service/requests";
import type { AuditEntry } from "../service/types";
import { place, setParams } from "../shell/router";

const PAGE = 100;

interface Loaded {
  readonly entries: readonly AuditEntry[];
  readonly next: string | null;
}

export function Audit() {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [problem, setProblem] = useState<Error | null>(null);
  const text = place.value.params.get("q") ?? "";

  async function read(path: string, before: readonly AuditEntry[]): Promise<void> {
    try {
      const answer = await send<AuditEntry[]>(path);
      setLoaded({ entries: [...before, ...answer.data], next: answer.next });
      setProblem(null);
    } catch (error) {
      setProblem(error as Error);
    }
  }
  const newest = () => void read(`/audit?limit=${PAGE}`, []);
  useEffect(newest, []);

  if (loaded === null) return problem === null ? <Waiting what="the audit log" /> : <Problem problem={problem} />;
  const shown = loaded.entries.filter((entry) => JSON.stringify(Object.values(entry)).toLowerCase().includes(text.toLowerCase()));
  return (
    <>
      <div class="list-head">
        <span class="quiet">
          {count(shown.length)} of {count(loaded.entries.length)} that are loaded
        </span>
        <button type="button" onClick={newest}>
          Read again
        </button>
        {problem !== null && <span class="badge bad">{problem.message}</span>}
        <input
          type="search"
          aria-label="Filter by text"
          placeholder="Filter by text"
          value={text}
          onInput={(event) => setParams({ q: event.currentTarget.value }, { replace: true })}
        />
      </div>
      {shown.length === 0 ? (
        <Empty title={text === "" ? "There are no entries." : "No entry that is loaded has this text."}>
          {text === "" && <p>Changes and refusals are written down once there is a key or a token, so that it is known whose they are.</p>}
        </Empty>
      ) : (
        <div class="table-frame" tabIndex={0} role="region" aria-label="Audit log">
          <table class="list stack">
            <thead>
              <tr>
                <th>At</th>
                <th>Who</th>
                <th>What</th>
                <th>On</th>
                <th>From</th>
                <th>Outcome</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((entry, index) => (
                <tr key={`${entry.at} ${index}`}>
                  <td class="nowrap">
                    <Moment at={entry.at} />
                  </td>
                  <td class="nowrap" data-label="Who">{entry.who}</td>
                  <td class="nowrap" data-label="What">{entry.what}</td>
                  <td class="grow cut mono" data-label="On" title={entry.on}>
                    {entry.on}
                  </td>
                  <td class="nowrap mono" data-label="From">{entry.from}</td>
                  <td class="nowrap" data-label="Outcome">
                    <span class={entry.outcome === "done" ? "" : "bad"}>{entry.outcome}</span> {entry.status != null && <span class="quiet">{entry.status}</span>}
                    {(entry.more ?? 0) > 0 && <span class="quiet"> and {count(entry.more!)} more before</span>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {loaded.next !== null && (
        <button type="button" class="more" onClick={() => void read(loaded.next!, loaded.entries)}>
          Older
        </button>
      )}
    </>
  );
}
