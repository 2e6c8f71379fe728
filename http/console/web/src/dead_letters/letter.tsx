/** One dead letter at the side: its error, where it comes from, and its body. */

import { useEffect, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { Copy, shortId } from "../parts/copy";
import { Json } from "../parts/json";
import { Problem, Waiting } from "../parts/messages";
import { bytes } from "../parts/sizes";
import { Ago, Moment } from "../parts/time";
import { usePolled } from "../service/polled";
import { part } from "../service/requests";
import type { DeadLetter } from "../service/types";
import { address, setParams } from "../shell/router";
import { may } from "../shell/session";
import { discard, hidden } from "./discarding";
import { commandsFor } from "./model";
import { ReplayDialog } from "./replay";

/** Larger bodies are read when they are asked for. */
const BODY_BYTES_MAX = 64 * 1024;

interface Props {
  seq: string;
  /** As the list has it. */
  known: DeadLetter | undefined;
  refresh: () => void;
  say: (text: string) => void;
}

const close = () => setParams({ letter: null }, { replace: true });

export function LetterPanel({ seq, known, refresh, say }: Props) {
  const read = usePolled<DeadLetter>(`/dead-letters/${part(seq)}?payload_max=${BODY_BYTES_MAX}`);
  const letter = read.data ?? known;
  useEffect(() => {
    const leave = (event: KeyboardEvent) => {
      if (event.key === "Escape" && document.querySelector("dialog[open]") === null) close();
    };
    addEventListener("keydown", leave);
    return () => removeEventListener("keydown", leave);
  }, []);
  if (hidden.value.has(Number(seq))) return null;
  return (
    <aside class="letter" aria-label={`Dead letter ${seq}`}>
      <header class="panel-head">
        <h2>Dead letter {seq}</h2>
        <button type="button" class="quiet-button" aria-label="Close" onClick={close}>
          ✕
        </button>
      </header>
      {letter === undefined ? (
        read.problem === null ? (
          <Waiting what="the dead letter" />
        ) : (
          <Problem problem={read.problem} />
        )
      ) : (
        <>
          <LetterActions letter={letter} refresh={refresh} say={say} />
          <div class="panel-error">
            <pre class="error-text" tabIndex={0}>
              {letter.error}
            </pre>
          </div>
          <Facts letter={letter} />
          <h3>Body</h3>
          {read.data === null ? <Waiting what="the body" /> : <Body letter={read.data} />}
        </>
      )}
    </aside>
  );
}

function LetterActions({ letter, refresh, say }: { letter: DeadLetter; refresh: () => void; say: (text: string) => void }) {
  const [asks, setAsks] = useState(false);
  if (!may("operate")) return null;
  return (
    <div class="letter-actions">
      {letter.kind === "task" && (
        <button type="button" class="primary" onClick={() => setAsks(true)}>
          Replay…
        </button>
      )}
      <button
        type="button"
        class="danger-quiet"
        onClick={() => {
          close();
          discard([letter.seq]);
        }}
      >
        Discard
      </button>
      <details class="commands">
        <summary>Discard by command</summary>
        {commandsFor("discard", [letter.seq]).map((line) => (
          <Copy key={line} text={line} />
        ))}
      </details>
      {asks && (
        <ReplayDialog
          letters={[letter]}
          done={(text) => {
            close();
            refresh();
            say(text);
          }}
          close={() => setAsks(false)}
        />
      )}
    </div>
  );
}

function Facts({ letter }: { letter: DeadLetter }) {
  return (
    <dl class="panel-facts">
      <Fact name="Kind">{letter.kind}</Fact>
      <Fact name="Put aside">
        <Moment at={letter.at} /> <span class="quiet">(<Ago at={letter.at} />)</span>
      </Fact>
      {letter.run_id && (
        <Fact name="Run">
          <a class="mono" href={address(`/runs/${part(letter.run_id)}`)}>
            {shortId(letter.run_id)}
          </a>{" "}
          <Copy text={letter.run_id} shown="copy id" label="Copy the run's id" />
          <button type="button" class="link" onClick={() => setParams({ run: letter.run_id ?? null, letter: null })}>
            its dead letters
          </button>
        </Fact>
      )}
      {letter.step_id && <Fact name="Step">{letter.step_id}</Fact>}
      {letter.task && (
        <Fact name="Task">
          <button type="button" class="link" onClick={() => setParams({ task: letter.task ?? null, letter: null })}>
            {letter.task}
          </button>
        </Fact>
      )}
      {letter.trigger && (
        <Fact name="Trigger">
          <a href={address(`/triggers/${part(letter.trigger)}`)}>{letter.trigger}</a>
        </Fact>
      )}
      {letter.attempts != null && <Fact name="Attempts">{letter.attempts}</Fact>}
      {letter.subject && (
        <Fact name="Subject">
          <Copy text={letter.subject} label="Copy the subject" />
        </Fact>
      )}
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="panel-fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Body({ letter }: { letter: DeadLetter }) {
  const [wanted, setWanted] = useState(false);
  const whole = usePolled<DeadLetter>(wanted ? `/dead-letters/${letter.seq}` : null);
  const shown = whole.data ?? letter;
  if (shown.payload_base64 != null) return <pre class="json">{decoded(shown.payload_base64)}</pre>;
  if (shown.payload_bytes != null) {
    return (
      <button type="button" disabled={wanted && whole.problem === null} onClick={() => setWanted(true)}>
        Read {bytes(shown.payload_bytes)}
      </button>
    );
  }
  if (shown.payload === undefined) return <p class="quiet">none</p>;
  return (
    <div class="json" tabIndex={0} role="region" aria-label="Body">
      <Json value={shown.payload} />
    </div>
  );
}

/** As text where it is some. */
function decoded(base64: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(base64), (one) => one.charCodeAt(0)));
  } catch {
    return base64;
  }
}
