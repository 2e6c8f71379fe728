/** What a step says while it runs: log lines, and the chunks that it streams, live and from the beginning. */

import { useEffect, useRef, useState } from "preact/hooks";
import { instant, inUtc, moment } from "../../parts/times";
import { follow, type Message } from "../../service/live";
import { part, query } from "../../service/requests";

interface Line {
  readonly seq: number;
  readonly at: string;
  readonly level: string;
  readonly text: string;
  readonly step_id: string;
  readonly attempt: number;
  readonly fields?: Record<string, unknown>;
}

interface Chunk {
  readonly attempt: number;
  readonly data?: unknown;
  readonly dropped?: number;
}

const LINES_MAX = 2000;
const TEXT_CHARS_MAX = 200_000;
const LEVELS = ["debug", "info", "warning", "error", "critical"];

export function Logs({ runId, stepId }: { runId: string; stepId: string }) {
  const [level, setLevel] = useState("debug");
  const lines = useSaid<Line>(`/runs/${part(runId)}/logs${query({ step: stepId })}`, "log", LINES_MAX);
  const shown = lines.filter((line) => LEVELS.indexOf(line.level) >= LEVELS.indexOf(level));
  const end = useEnd(shown.length);
  if (lines.length === 0) return null;
  return (
    <section>
      <h3>
        Log{" "}
        <label class="level">
          <span class="visually-hidden">Level</span>
          <select value={level} onChange={(event) => setLevel(event.currentTarget.value)}>
            {LEVELS.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
      </h3>
      <div class="log" ref={end} role="log" tabIndex={0} aria-label="Log lines">
        {shown.map((line) => (
          <div key={line.seq} class={`log-line l-${line.level}`}>
            <time title={line.at}>{moment(instant(line.at), inUtc.value).slice(-8)}</time>
            <span class="log-text">
              {line.text}
              {line.fields !== undefined && <span class="quiet"> {fieldsOf(line.fields)}</span>}
            </span>
          </div>
        ))}
      </div>
    </section>
  );
}

function fieldsOf(fields: Record<string, unknown>): string {
  return Object.entries(fields)
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" ");
}

/** Chunks in a row: text as text, anything else as JSON, a line each. Only those of the last attempt. */
export function Chunks({ runId, stepId }: { runId: string; stepId: string }) {
  const chunks = useSaid<Chunk>(`/runs/${part(runId)}/stream${query({ step: stepId })}`, "chunk", 50_000);
  const attempt = chunks.at(-1)?.attempt;
  const text = chunks
    .filter((chunk) => chunk.attempt === attempt)
    .map((chunk) => (typeof chunk.data === "string" ? chunk.data : chunk.data === undefined ? ` … ${chunk.dropped} dropped … ` : `${JSON.stringify(chunk.data)}\n`))
    .join("")
    .slice(-TEXT_CHARS_MAX);
  const end = useEnd(text.length);
  if (chunks.length === 0) return null;
  return (
    <section>
      <h3>Stream</h3>
      <div class="stream-text" ref={end} role="log" tabIndex={0} aria-label="Streamed text">
        {text}
      </div>
    </section>
  );
}

/** The messages of this kind of a live stream, the newest `most`. */
function useSaid<T>(path: string, kind: string, most: number): readonly T[] {
  const [said, setSaid] = useState<readonly T[]>([]);
  useEffect(() => {
    setSaid([]);
    let over = false;
    const stream = follow(path, {
      after: "",
      onMessages: (messages: readonly Message[]) => {
        over ||= messages.some((message) => message.event === "end");
        const found = messages.filter((message) => message.event === kind).map((message) => ({ ...(JSON.parse(message.data) as T), seq: Number(message.id) }));
        if (found.length > 0) setSaid((before) => [...before, ...found].slice(-most));
      },
      isOver: () => Promise.resolve(over),
      onState: () => undefined,
    });
    return () => stream.stop();
  }, [path, kind, most]);
  return said;
}

/** Keeps the end of a box in sight as it grows, unless somebody has scrolled up. */
function useEnd(length: number) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    const found = box.current;
    if (found === null) return;
    if (atEnd.current) found.scrollTop = found.scrollHeight;
    const look = () => (atEnd.current = found.scrollHeight - found.scrollTop - found.clientHeight < 24);
    found.addEventListener("scroll", look, { passive: true });
    return () => found.removeEventListener("scroll", look);
  }, [length]);
  return box;
}
