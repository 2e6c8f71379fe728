/** The events of a run, and the slider that sets the page to the moment of one of them. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Json } from "../parts/json";
import { bytes, count, plural } from "../parts/sizes";
import { duration, instant } from "../parts/times";
import { VirtualRows } from "../parts/virtual";
import { get, part, query } from "../service/requests";
import type { RunEvent } from "../service/types";
import { setParams } from "../shell/router";
import type { RunStore } from "./store";
import type { View } from "./timeline";

const ROW_HEIGHT = 26;

interface Props {
  store: RunStore;
  at: number | null;
  view: View;
  choose: (stepId: string | null) => void;
}

export function EventTable({ store, at, view, choose }: Props) {
  const [text, setText] = useState("");
  const grown = store.grown.value;
  const only = view.chosen.value;
  const [ofStep, setOfStep] = useState(false);
  const shown = useMemo(() => matching(store.events, text, ofStep ? only : null), [store, grown, text, ofStep, only]);
  const begun = store.events[0]?.timestamp;
  return (
    <section class="events" aria-label="Events">
      <div class="events-head">
        <h2>
          Events <span class="quiet">{count(store.events.length)}{store.complete.value ? "" : " …"}</span>
        </h2>
        <Slider store={store} at={at} />
        <input type="search" placeholder="Filter: type, step, text" aria-label="Filter events" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        {only !== null && (
          <label class="check">
            <input type="checkbox" checked={ofStep} onChange={(event) => setOfStep(event.currentTarget.checked)} /> only {only}
          </label>
        )}
        <a href={`/runs/${part(store.runId)}/export`} download={`${store.runId}.json`}>
          Export
        </a>
      </div>
      <div class="events-table" role="table" aria-rowcount={shown.length}>
        <VirtualRows count={shown.length} rowHeight={ROW_HEIGHT}>
          {(first, last) => shown.slice(first, last).map((event) => <EventRow key={event.seq} event={event} begun={begun} runId={store.runId} later={at !== null && event.seq > at} marked={at === event.seq} choose={choose} />)}
        </VirtualRows>
      </div>
      {shown.length === 0 && <p class="quiet">{text === "" ? "No events yet." : "No event matches."}</p>}
    </section>
  );
}

interface RowProps {
  event: RunEvent;
  runId: string;
  begun: string | undefined;
  later: boolean;
  marked: boolean;
  choose: Props["choose"];
}

function EventRow({ event, runId, begun, later, marked, choose }: RowProps) {
  const [open, setOpen] = useState(false);
  const offset = since(begun, event.timestamp) ?? 0;
  const began = since(begun, event.started_at);
  return (
    <div class={`event${later ? " later" : ""}${marked ? " marked" : ""}`} role="row">
      <span role="cell">
        <button type="button" class="event-seq mono" title="Show the run as it was then" onClick={() => setParams({ at: String(event.seq) }, { replace: true })}>
          {event.seq}
        </button>
      </span>
      <span class="event-at number" role="cell">
        +{duration(offset)}
      </span>
      <span class={`event-type t-${tone(event.type)}`} role="cell">
        {event.type}
      </span>
      <span role="cell" class="event-step">
        {event.step_id !== undefined && (
          <button type="button" class="link" onClick={() => choose(event.item === undefined ? event.step_id! : event.step_id!.replace(/\.\d+$/, ""))}>
            {event.step_id}
          </button>
        )}
        {(event.attempt_number ?? 0) > 1 && <span class="quiet"> attempt {event.attempt_number}</span>}
      </span>
      <span role="cell" class="event-payload mono">
        {began !== null && <span class="quiet">began +{duration(began)} </span>}
        {summary(event)}
      </span>
      <span role="cell">
        <button type="button" class="event-more" title="Show the whole event" aria-label={`Show event ${event.seq}`} onClick={() => setOpen(true)}>
          …
        </button>
        {open && <EventDialog runId={runId} event={event} close={() => setOpen(false)} />}
      </span>
    </div>
  );
}

/** The ms from one moment to another; null where one of them is not known. */
function since(from: string | undefined, to: string | undefined): number | null {
  return from === undefined || to === undefined ? null : instant(to) - instant(from);
}

/** One event as it is stored, whatever its size. */
function EventDialog({ runId, event, close }: { runId: string; event: RunEvent; close: () => void }) {
  const box = useRef<HTMLDialogElement>(null);
  const [whole, setWhole] = useState<unknown>(event.payload_bytes === undefined ? event : null);
  useEffect(() => {
    box.current?.showModal();
    if (whole !== null) return;
    void get<RunEvent[]>(`/runs/${part(runId)}/events${query({ after: event.seq - 1, limit: 1 })}`).then(([found]) => setWhole(found ?? event));
  }, []);
  return (
    <dialog ref={box} class="event-dialog" onClose={close} aria-label={`Event ${event.seq}`}>
      <h2>
        {event.type} <span class="quiet">{event.seq}</span>
      </h2>
      <div class="json">{whole === null ? <p>Reading {bytes(event.payload_bytes ?? 0)} …</p> : <Json value={whole} levels={5} />}</div>
      <form method="dialog" class="dialog-buttons">
        <button type="submit">Close</button>
      </form>
    </dialog>
  );
}

function tone(type: string): string {
  if (type.endsWith("failed") || type.endsWith("rejected") || type.endsWith("expired")) return "bad";
  if (type.endsWith("completed") || type.endsWith("granted")) return "good";
  return "plain";
}

const SUMMARY_MAX = 240;

function summary(event: RunEvent): string {
  if (event.payload_bytes !== undefined) return bytes(event.payload_bytes);
  if (event.payload === undefined || event.payload === null) return event.worker_id ?? "";
  return JSON.stringify(event.payload).slice(0, SUMMARY_MAX);
}

function matching(events: readonly RunEvent[], text: string, stepId: string | null): readonly RunEvent[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "" && stepId === null) return events.slice();
  return events.filter(
    (event) =>
      (stepId === null || event.step_id === stepId || event.step_id?.startsWith(`${stepId}.`)) &&
      (wanted === "" || `${event.seq} ${event.type} ${event.step_id ?? ""} ${summary(event)}`.toLowerCase().includes(wanted)),
  );
}

/** Goes through the moments of the run; at its right end the page is live. */
function Slider({ store, at }: { store: RunStore; at: number | null }) {
  const { events } = store;
  if (events.length < 2) return null;
  const place = at === null ? events.length : indexOf(events, at);
  return (
    <label class="slider">
      <span class="visually-hidden">The run as it was at an event</span>
      <input
        type="range"
        min={0}
        max={events.length}
        value={place}
        aria-valuetext={at === null ? "now" : `event ${place + 1} of ${plural(events.length, "event")}`}
        onInput={(event) => {
          const index = Number(event.currentTarget.value);
          setParams({ at: index >= events.length ? null : String(events[index]!.seq) }, { replace: true });
        }}
      />
    </label>
  );
}

function indexOf(events: readonly RunEvent[], seq: number): number {
  let [low, high] = [0, events.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (events[middle]!.seq <= seq) low = middle;
    else high = middle - 1;
  }
  return low;
}
