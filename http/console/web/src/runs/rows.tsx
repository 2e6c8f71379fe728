/** The rows of the table of runs: each says how far its run is and, where it is held up, why. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Copy, shortId } from "../parts/copy";
import { Sentence } from "../parts/sentence";
import { bytes, plural } from "../parts/sizes";
import { Status, StatusIcon } from "../parts/status";
import { Ago, Elapsed, Moment } from "../parts/time";
import { VirtualRows } from "../parts/virtual";
import { part } from "../service/requests";
import type { RunSummary } from "../service/types";
import { address, go } from "../shell/router";
import { selected } from "./filter";
import type { Row, RunList } from "./list";
import { StepsStrip } from "./progress";

export const WIDE_PX = 44;
export const NARROW_PX = 112;
const NARROW = matchMedia("(width < 720px)");

interface Props {
  list: RunList;
  cursor: string | null;
  /** Narrows the list to the runs with a label. */
  onLabel: (label: string) => void;
  onTrigger: (name: string) => void;
  mayChange: boolean;
}

export function useRowHeight(): number {
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const look = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", look);
    return () => NARROW.removeEventListener("change", look);
  }, []);
  return narrow ? NARROW_PX : WIDE_PX;
}

export function Rows({ list, cursor, onLabel, onTrigger, mayChange }: Props) {
  const height = useRowHeight();
  const rows = list.rows.value;
  const drawn = new WeakMap<Row, JSX.Element>(); // scrolling draws only rows that were not seen before
  function draw(row: Row, place: number): JSX.Element {
    const known = drawn.get(row);
    if (known !== undefined) return known;
    const id = row.run.run_id;
    const made = <OneRow key={id} row={row} place={place} here={cursor === id} onLabel={onLabel} onTrigger={onTrigger} mayChange={mayChange} />;
    drawn.set(row, made);
    return made;
  }
  return (
    <div role="table" aria-label="Runs" aria-rowcount={rows.length + 1} class={`runs${mayChange ? "" : " without-select"}`}>
      <div role="rowgroup">
        <div role="row" class="runs-row runs-columns">
          {mayChange && (
            <span role="columnheader">
              <SelectAll rows={rows} />
            </span>
          )}
          <span role="columnheader">Status</span>
          <span role="columnheader">Workflow and run</span>
          <span role="columnheader" class="c-times">
            Started, took
          </span>
          <span role="columnheader" class="c-steps">
            Steps
          </span>
          <span role="columnheader" class="c-detail">
            Why it waits or failed, input
          </span>
          <span role="columnheader" class="c-labels">
            Labels
          </span>
        </div>
      </div>
      <VirtualRows count={rows.length} rowHeight={height}>
        {(first, last) => {
          list.look((first + last) >> 1);
          if (last >= rows.length - 20) queueMicrotask(() => void list.more());
          return (
            <div role="rowgroup">{rows.slice(first, last).map((row, index) => draw(row, first + index))}</div>
          );
        }}
      </VirtualRows>
    </div>
  );
}

interface RowProps {
  row: Row;
  place: number;
  here: boolean;
  onLabel: (label: string) => void;
  onTrigger: (name: string) => void;
  mayChange: boolean;
}

function OneRow({ row: { run, gone, isNew }, place, here, onLabel, onTrigger, mayChange }: RowProps) {
  const chosen = selected.value.has(run.run_id);
  const link = `/runs/${part(run.run_id)}`;
  const classes = ["runs-row", chosen && "chosen", here && "here", gone && "gone", isNew && "came"].filter(Boolean).join(" ");
  function open(event: MouseEvent): void {
    if ((event.target as Element).closest("a, button, input, label") !== null || getSelection()?.toString()) return;
    go(link);
  }
  return (
    <div role="row" class={classes} aria-rowindex={place + 2} aria-selected={mayChange ? chosen : undefined} data-run={run.run_id} onClick={open}>
      {mayChange && (
        <span role="cell" class="c-mark">
          <label class="c-select">
            <input type="checkbox" checked={chosen} aria-label={`Select run ${run.run_id}`} onChange={() => toggle(run.run_id)} />
          </label>
        </span>
      )}
      <span role="cell" class="c-status">
        <Status status={run.paused_at ? "paused" : run.held_up ? "held up" : run.status} />
      </span>
      <span role="cell" class="c-name">
        <a href={address(link)} class="runs-name">
          {run.workflow_id}
          <span class="version">@{run.version}</span>
        </a>
        <span class="c-id">
          <Copy text={run.run_id} shown={shortId(run.run_id)} label="Copy the run id" />
          <Origin run={run} onTrigger={onTrigger} />
        </span>
      </span>
      <span role="cell" class="c-times">
        <Started run={run} />
        <span class="quiet">
          {run.status === "scheduled" ? <Moment at={run.run_at} /> : <Elapsed from={run.started_at ?? run.created_at} to={run.finished_at} />}
        </span>
      </span>
      <span role="cell" class="c-steps">
        <StepsStrip steps={run.steps} />
      </span>
      <span role="cell" class="c-detail">
        <Detail run={run} />
      </span>
      <span role="cell" class="c-labels">
        <Labels labels={run.labels ?? null} onLabel={onLabel} />
      </span>
    </div>
  );
}

function Started({ run }: { run: RunSummary }) {
  if (run.status === "scheduled") return <Ago at={run.run_at} />;
  return <Ago at={run.created_at} />;
}

/** Where a run comes from, if not from a person or a program. */
function Origin({ run, onTrigger }: { run: RunSummary; onTrigger: (name: string) => void }) {
  if (run.rerun_of) return <span class="badge" title={`A rerun of ${run.rerun_of}`}>rerun</span>;
  const trigger = run.trigger?.name;
  if (trigger !== undefined) {
    return (
      <button type="button" class="label" title={`Only runs that the trigger ${trigger} has started`} onClick={() => onTrigger(trigger)}>
        {trigger}
      </button>
    );
  }
  if (run.parent) return <span class="badge" title="Started by a step of another run">child</span>;
  if (run.failure_of) return <span class="badge" title={`Started by the failure of ${run.failure_of}`}>on failure</span>;
  if (run.imported) return <span class="badge" title="A record of another service">imported</span>;
  return null;
}

/** What one wants to know of a run without opening it: why it waits, else what it failed of, and what it was given. */
function Detail({ run }: { run: RunSummary }) {
  if (run.waiting) {
    return (
      <span class={`why ${run.held_up ? "act" : "calm"}`} title={run.waiting.text}>
        <StatusIcon status={run.waiting.reason === "paused" ? "paused" : run.held_up ? "held up" : "queued"} bare />
        <span class="why-text">
          <Sentence text={run.waiting.text} />
        </span>
      </span>
    );
  }
  return (
    <>
      {run.error && (
        <span class="short-error" title={run.error}>
          {run.error}
        </span>
      )}
      {(run.failed_items ?? 0) > 0 && !run.error && <span class="short-error">{plural(run.failed_items!, "element")} of a map failed</span>}
      <Input run={run} />
    </>
  );
}

function Input({ run }: { run: RunSummary }) {
  if (run.input === undefined || run.input === null) return run.input_bytes ? <span class="short-input">input of {bytes(run.input_bytes)}</span> : null;
  return (
    <span class={`short-input${run.error || run.failed_items ? " one-line" : ""}`} title={run.input}>
      {run.input}
      {run.input_bytes ? "…" : ""}
    </span>
  );
}

const LABELS_SHOWN = 3;

function Labels({ labels, onLabel }: { labels: Record<string, string> | null; onLabel: (label: string) => void }) {
  const found = Object.entries(labels ?? {});
  return (
    <>
      {found.slice(0, LABELS_SHOWN).map(([key, value]) => (
        <button key={key} type="button" class="label" title={`Only runs with ${key}:${value}`} onClick={() => onLabel(`${key}:${value}`)}>
          <span class="label-key">{key}</span> {value}
        </button>
      ))}
      {found.length > LABELS_SHOWN && (
        <span class="quiet" title={found.map((one) => one.join(":")).join("\n")}>
          +{found.length - LABELS_SHOWN}
        </span>
      )}
    </>
  );
}

export function toggle(runId: string): void {
  const next = new Set(selected.value);
  if (!next.delete(runId)) next.add(runId);
  selected.value = next;
}

function SelectAll({ rows }: { rows: readonly Row[] }) {
  const all = rows.length > 0 && rows.every((row) => selected.value.has(row.run.run_id));
  const some = selected.value.size > 0 && !all;
  return (
    <label class="c-select">
      <input
        type="checkbox"
        checked={all}
        ref={(box) => void (box && (box.indeterminate = some))}
        aria-label="Select all runs that are shown"
        onChange={() => (selected.value = all ? new Set() : new Set(rows.map((row) => row.run.run_id)))}
      />
    </label>
  );
}
