/** The filters above the table: text, workflow, time, statuses with their numbers, and what else narrows the list. */

import { useEffect, useRef, useState } from "preact/hooks";
import { shortId } from "../parts/copy";
import { inUtc, instant, moment } from "../parts/times";
import { short } from "../parts/sizes";
import { StatusIcon } from "../parts/status";
import type { RunStats } from "../service/types";
import { RANGES, STATUSES, type Filter } from "./filter";
import { countedSince, type Numbers } from "./numbers";

interface Props {
  filter: Filter;
  change: (changes: Partial<Filter>) => void;
  workflows: readonly string[];
  numbers: Numbers | null;
  pausedRuns: RunStats | null;
  /** Of the runs that are shown; `isAll`: there are no others. */
  heldUpRuns: { number: number; isAll: boolean };
}

const TYPING_MS = 250;
const ALWAYS = new Set(["running", "completed", "failed"]);

export function Filters({ filter, change, workflows, numbers, pausedRuns, heldUpRuns }: Props) {
  const known = filter.workflow === "" || workflows.includes(filter.workflow) ? workflows : [filter.workflow, ...workflows];
  const least = atLeast(numbers?.since ?? null);
  const isCustom = filter.range === "" && (filter.after !== "" || filter.before !== "");
  return (
    <div class="filters" role="search" aria-label="Filter runs">
      <div class="filters-line">
        <Search filter={filter} change={change} />
        <select aria-label="Workflow" value={filter.workflow} onChange={(event) => change({ workflow: event.currentTarget.value })}>
          <option value="">All workflows</option>
          {known.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
        <select
          aria-label="Time"
          value={isCustom ? "custom" : filter.range}
          onChange={(event) => change({ range: event.currentTarget.value, after: "", before: "" })}
        >
          <option value="">All time</option>
          {RANGES.map(([key, label]) => (
            <option key={key} value={key}>
              {label}
            </option>
          ))}
          {isCustom && <option value="custom">Chosen time</option>}
        </select>
        <Chips filter={filter} change={change} />
      </div>
      <div class="status-facets" role="group" aria-label="Statuses">
        <Facet label="All" number={numbers?.total ?? null} {...least} chosen={filter.status === "" && !filter.paused && !filter.heldUp} choose={() => change({ status: "", paused: false, heldUp: false })} />
        {STATUSES.filter((one) => ALWAYS.has(one) || one === filter.status || numbers?.byStatus[one]).map((one) => (
          <Facet
            key={one}
            status={one}
            label={one}
            number={numbers === null ? null : (numbers.byStatus[one] ?? 0)}
            {...least}
            chosen={filter.status === one}
            choose={() => change({ status: filter.status === one ? "" : one })}
          />
        ))}
        <span class="facet-gap" />
        <Facet status="paused" label="paused" number={pausedRuns?.total ?? null} {...atLeast(pausedRuns && countedSince(pausedRuns))} chosen={filter.paused} choose={() => change({ paused: !filter.paused })} />
        <Facet
          status="held up"
          label="held up"
          number={filter.heldUp || heldUpRuns.number === 0 ? null : heldUpRuns.number}
          isLeast={!heldUpRuns.isAll}
          hint={`Runs that somebody has to act on: nobody serves a task, an approval is open, a run is paused.${heldUpRuns.isAll ? "" : " At least so many: only the runs that are listed below were looked at."}`}
          chosen={filter.heldUp}
          choose={() => change({ heldUp: !filter.heldUp })}
        />
      </div>
    </div>
  );
}

function Search({ filter, change }: Pick<Props, "filter" | "change">) {
  const box = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(filter.text);
  useEffect(() => {
    if (document.activeElement !== box.current) setText(filter.text);
  }, [filter.text]);
  useEffect(() => {
    const timer = setTimeout(() => text.trim() !== filter.text && change({ text: text.trim() }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  /** Enter makes of `team:payments` a filter by this label, and of `trigger:nightly` one by this trigger. */
  function press(event: KeyboardEvent): void {
    if (event.key === "Escape") box.current?.blur();
    const colon = text.indexOf(":");
    if (event.key !== "Enter" || colon < 1) return;
    const [key, value] = [text.slice(0, colon).trim(), text.slice(colon + 1).trim()];
    setText("");
    if (key === "trigger") change({ text: "", trigger: value });
    else change({ text: "", labels: [...filter.labels.filter((one) => !one.startsWith(`${key}:`)), `${key}:${value}`] });
  }
  return (
    <input
      ref={box}
      type="search"
      class="search"
      data-search
      aria-label="Search runs by the beginning of an id or by a label"
      title="The beginning of an id, or what a label contains. Enter after key:value takes this label, after trigger:name this trigger."
      placeholder="Id, label or key:value   /"
      maxLength={100}
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
      onKeyDown={press}
    />
  );
}

const atLeast = (since: number | null): { isLeast?: boolean; hint?: string } =>
  since === null ? {} : { isLeast: true, hint: `At least so many: counted back to ${moment(since, inUtc.value)}.` };

interface FacetProps {
  status?: string;
  label: string;
  number: number | null;
  /** There may be more. */
  isLeast?: boolean;
  hint?: string;
  chosen: boolean;
  choose: () => void;
}

function Facet({ status, label, number, isLeast = false, hint, chosen, choose }: FacetProps) {
  return (
    <button type="button" class={`facet${number === 0 ? " zero" : ""}`} aria-pressed={chosen} title={hint} onClick={choose}>
      {status !== undefined && <StatusIcon status={status} bare />}
      {label}
      {number !== null && <span class="facet-number number">{`${short(number)}${isLeast ? "+" : ""}`}</span>}
    </button>
  );
}

/** What else narrows the list: each with a cross that takes it away. */
function Chips({ filter, change }: Pick<Props, "filter" | "change">) {
  const chips: [string, Partial<Filter>][] = filter.labels.map((label) => [label, { labels: filter.labels.filter((one) => one !== label) }]);
  if (filter.parent !== "") chips.push([`children of ${shortId(filter.parent)}`, { parent: "" }]);
  if (filter.trigger !== "") chips.push([`trigger ${filter.trigger}`, { trigger: "" }]);
  if (filter.range === "" && (filter.after !== "" || filter.before !== "")) chips.push([times(filter), { after: "", before: "" }]);
  return (
    <>
      {chips.map(([text, without]) => (
        <button key={text} type="button" class="chip" aria-label={`Without ${text}`} title="Take this filter away" onClick={() => change(without)}>
          {text} <span aria-hidden="true">×</span>
        </button>
      ))}
    </>
  );
}

function times({ after, before }: Filter): string {
  const shown = (text: string): string => (Number.isNaN(Date.parse(text)) ? text : moment(instant(text), inUtc.value));
  if (before === "") return `since ${shown(after)}`;
  return after === "" ? `until ${shown(before)}` : `${shown(after)} – ${shown(before)}`;
}
