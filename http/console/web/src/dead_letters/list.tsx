/** The list of dead letters, with a selection and what can be done with it. */

import { useState } from "preact/hooks";
import { Copy, shortId } from "../parts/copy";
import { plural } from "../parts/sizes";
import { Ago } from "../parts/time";
import { part } from "../service/requests";
import type { DeadLetter } from "../service/types";
import { address, place } from "../shell/router";
import { may } from "../shell/session";
import { discard } from "./discarding";
import { commandsFor, reasonOf, toReplay } from "./model";
import { ReplayDialog } from "./replay";

interface Props {
  letters: readonly DeadLetter[];
  /** The sequence of the one that is shown at the side. */
  open: string;
  refresh: () => void;
  say: (text: string) => void;
}

export function LetterList({ letters, open, refresh, say }: Props) {
  const [selected, setSelected] = useState<ReadonlySet<number>>(new Set());
  const chosen = letters.filter((letter) => selected.has(letter.seq));
  const isAll = letters.length > 0 && chosen.length === letters.length;
  const canChange = may("operate");
  const select = (seq: number) => setSelected(new Set(selected.has(seq) ? [...selected].filter((one) => one !== seq) : [...selected, seq]));
  return (
    <>
      <div class="table-frame" tabIndex={0} role="region" aria-label="Dead letters">
        <table class="list letters stack">
          <thead>
            <tr>
              {canChange && (
                <th class="select">
                  <input
                    type="checkbox"
                    aria-label="Select all that are shown"
                    checked={isAll}
                    onChange={() => setSelected(new Set(isAll ? [] : letters.map((letter) => letter.seq)))}
                  />
                </th>
              )}
              <th>Error</th>
              <th>Of</th>
              <th>Run</th>
              <th class="right">Attempts</th>
              <th class="right">Age</th>
            </tr>
          </thead>
          <tbody>
            {letters.map((letter) => (
              <tr key={letter.seq} class={String(letter.seq) === open ? "chosen" : ""}>
                {canChange && (
                  <td class="select">
                    <input type="checkbox" aria-label={`Select ${letter.seq}`} checked={selected.has(letter.seq)} onChange={() => select(letter.seq)} />
                  </td>
                )}
                <td class="grow cut">
                  <a class="letter-error" href={hrefOf(letter)} title={letter.error}>
                    {reasonOf(letter)}
                  </a>
                </td>
                <td class="nowrap" data-label="Of">
                  <Of letter={letter} />
                </td>
                <td class="nowrap" data-label="Run">
                  {letter.run_id ? (
                    <a class="mono" href={address(`/runs/${part(letter.run_id)}${letter.step_id ? `?step=${part(letter.step_id)}` : ""}`)} title={letter.run_id}>
                      {shortId(letter.run_id)}
                    </a>
                  ) : (
                    <span class="none">–</span>
                  )}
                </td>
                <td class="right number" data-label="Attempts">{letter.attempts ?? <span class="none">–</span>}</td>
                <td class="right nowrap" data-label="Age">
                  <Ago at={letter.at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {chosen.length > 0 && <Selection chosen={chosen} clear={() => setSelected(new Set())} refresh={refresh} say={say} />}
    </>
  );
}

function hrefOf(letter: DeadLetter): string {
  const params = new URLSearchParams(place.value.params);
  params.set("letter", String(letter.seq));
  return address(`/dead-letters?${params}`);
}

/** The task with its step; of what is no task, its kind. */
function Of({ letter }: { letter: DeadLetter }) {
  if (letter.kind === "task") {
    return (
      <>
        {letter.task}
        {letter.step_id && letter.step_id !== letter.task && <span class="quiet"> · {letter.step_id}</span>}
      </>
    );
  }
  return (
    <>
      <span class="badge">{letter.kind}</span> {letter.trigger ?? ""}
    </>
  );
}

interface SelectionProps {
  chosen: readonly DeadLetter[];
  clear: () => void;
  refresh: () => void;
  say: (text: string) => void;
}

function Selection({ chosen, clear, refresh, say }: SelectionProps) {
  const [asks, setAsks] = useState(false);
  const seqs = chosen.map((letter) => letter.seq);
  const replayable = toReplay(chosen);
  return (
    <div class="selection" role="region" aria-label="Selection">
      <strong>{plural(chosen.length, "dead letter")} selected</strong>
      <button type="button" class="primary" disabled={replayable.length === 0} onClick={() => setAsks(true)}>
        Replay…
      </button>
      <button
        type="button"
        class="danger-quiet"
        onClick={() => {
          discard(seqs);
          clear();
        }}
      >
        Discard
      </button>
      <button type="button" class="quiet-button" onClick={clear}>
        Clear
      </button>
      <details class="commands">
        <summary>Discard by command</summary>
        {commandsFor("discard", seqs).map((line) => (
          <Copy key={line} text={line} />
        ))}
      </details>
      {asks && (
        <ReplayDialog
          letters={chosen}
          done={(text) => {
            clear();
            refresh();
            say(text);
          }}
          close={() => setAsks(false)}
        />
      )}
    </div>
  );
}
