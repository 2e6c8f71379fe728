/** The list of runs: filters, their numbers over time, the table, and what can be done with what is selected. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Problem, Waiting } from "../parts/messages";
import { count, plural } from "../parts/sizes";
import { usePolled } from "../service/polled";
import { query } from "../service/requests";
import { SUMMARIES, type RunStats, type WorkflowSummary } from "../service/types";
import { go, place, setParams } from "../shell/router";
import { may } from "../shell/session";
import { SelectionBar } from "./bulk";
import { apiParams, isFiltered, NO_FILTER, PAGE_RUNS, readFilter, rfc3339, selected, serviceNow, timesOf, writeFilter, type Filter } from "./filter";
import { Filters } from "./filters";
import { FirstRun } from "./first";
import { Histogram } from "./histogram";
import { useTableKeys } from "./keys";
import { ROWS_MAX, RunList } from "./list";
import { countAll, inShort, useNumbers } from "./numbers";
import { Rows, useRowHeight } from "./rows";
import { StartRun } from "./start";
import { SavedViews } from "./views";

const READING_PX = 60;
const PAUSED_EVERY_MS = 10_000;
const SETTLED_MS = 1000;

export function RunsPage(_: { id: string }) {
  const filter = readFilter(place.value.params);
  const key = writeFilter(filter);
  // Other pages lead here to start a run: of a workflow, or like a former run.
  const [wanted, like] = [place.value.params.get("start"), place.value.params.get("like")];
  const [starting, setStarting] = useState(false);
  const table = useRef<HTMLDivElement>(null);
  const times = useMemo(() => timesOf(filter, serviceNow()), [key]);
  const numbers = useNumbers(filter);
  const list = useList(filter, times, table);
  const settled = useSettled();
  const needsNames = settled || starting || wanted !== null || like !== null || (list.isRead.value && list.rows.value.length === 0);
  const workflows = usePolled<WorkflowSummary[]>(needsNames ? SUMMARIES : null);
  const pausedPath = `/runs/stats${query({ ...apiParams(filter, times, { status: false }), paused: true, ...inShort })}`;
  const paused = usePolled<RunStats>(settled ? pausedPath : null, PAUSED_EVERY_MS);
  const cursor = useTableKeys(list, useRowHeight(), may("operate"));
  useEffect(() => () => void (selected.value = new Set()), [key]);

  const change = (changes: Partial<Filter>): void => go(`/runs${writeFilter({ ...filter, ...changes })}`);
  const rows = list.rows.value;
  const names = (workflows.data ?? []).map((one) => one.name).sort();

  function stopStarting(): void {
    setStarting(false);
    if (wanted !== null || like !== null) setParams({ start: null, like: null }, { replace: true });
  }
  const isStarting = may("operate") && (starting || wanted !== null || like !== null) && workflows.data !== null;
  const startDialog = isStarting && <StartRun workflows={names} chosen={wanted ?? filter.workflow} like={like ?? ""} close={stopStarting} />;

  if (list.isRead.value && rows.length === 0 && !isFiltered(filter) && list.waiting.value.length === 0) {
    return (
      <>
        <FirstRun workflows={names} start={() => setStarting(true)} />
        {startDialog}
      </>
    );
  }
  return (
    <div class="runs-page">
      <header class="runs-head">
        <h1>Runs</h1>
        <SavedViews filter={filter} choose={(next) => go(`/runs${next}`)} />
        {may("operate") && (
          <button type="button" class="primary" onClick={() => setStarting(true)}>
            Start a run
          </button>
        )}
      </header>
      <Filters
        filter={filter}
        change={change}
        workflows={names}
        numbers={numbers}
        pausedRuns={paused.data}
        heldUpRuns={{ number: rows.filter((row) => row.run.held_up).length, isAll: !list.hasMore.value }}
      />
      <div class="over-time-place">
        {numbers !== null && numbers.bars.length > 0 && (
          <Histogram numbers={numbers} status={filter.heldUp ? "running" : filter.status} choose={(from, to) => change({ range: "", after: rfc3339(from), before: rfc3339(to - 1) })} countAll={() => countAll(filter)} />
        )}
      </div>
      {list.problem.value !== null && <Problem problem={list.problem.value} />}
      <div ref={table} class="runs-table">
        {list.isRead.value ? <Rows list={list} cursor={cursor} mayChange={may("operate")} onLabel={(label) => change({ labels: withLabel(filter, label) })} onTrigger={(trigger) => change({ trigger })} /> : list.problem.value === null && <Waiting what="runs" />}
        <NewRuns list={list} />
      </div>
      <Foot list={list} filter={filter} />
      <SelectionBar list={list} filter={filter} times={times} isLeast={numbers !== null && numbers.since !== null} total={filter.heldUp || numbers === null ? null : filter.status === "" ? numbers.total : (numbers.byStatus[filter.status] ?? 0)} />
      {startDialog}
    </div>
  );
}

/** False for the first moments: what nobody looks at first is asked for later. */
function useSettled(): boolean {
  const [settled, setSettled] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(true), SETTLED_MS);
    return () => clearTimeout(timer);
  }, []);
  return settled;
}

/** Labels of a filter have different keys. */
function withLabel(filter: Filter, label: string): string[] {
  const key = label.slice(0, label.indexOf(":") + 1);
  return [...filter.labels.filter((one) => !one.startsWith(key)), label];
}

function useList(filter: Filter, times: { after: string; before: string }, table: { current: HTMLDivElement | null }): RunList {
  const path = `/runs/summaries${query({ ...apiParams(filter, times), held_up: filter.heldUp || null, limit: PAGE_RUNS })}`;
  const list = useMemo(() => {
    const isBusy = (): boolean =>
      scrollY > READING_PX || selected.peek().size > 0 || document.querySelector("dialog[open]") !== null || table.current?.matches(":hover, :focus-within") === true;
    return new RunList(path, isBusy);
  }, [path]);
  useEffect(() => () => list.stop(), [list]);
  return list;
}

/** Says what has come while one reads, and shows it when it is wanted. */
function NewRuns({ list }: { list: RunList }) {
  const came = list.waiting.value.length;
  if (came === 0) return null;
  function show(): void {
    list.settle();
    scrollTo(0, 0);
  }
  return (
    <button type="button" class="new-runs" onClick={show}>
      {came >= PAGE_RUNS ? `${PAGE_RUNS} or more new runs` : plural(came, "new run")}
    </button>
  );
}

function Foot({ list, filter }: { list: RunList; filter: Filter }) {
  const rows = list.rows.value.length;
  if (!list.isRead.value) return null;
  if (rows === 0 && !list.hasMore.value) {
    return (
      <div class="runs-foot">
        <p class="empty-title">{filter.heldUp ? "Nothing is held up." : "No run matches."}</p>
        {isFiltered(filter) && (
          <button type="button" class="link" onClick={() => go(`/runs${writeFilter(NO_FILTER)}`)}>
            Show all runs
          </button>
        )}
      </div>
    );
  }
  if (rows >= ROWS_MAX) return <p class="runs-foot">These are the {count(ROWS_MAX)} newest: narrow the time to see others.</p>;
  if (!list.hasMore.value) return <p class="runs-foot quiet">{plural(rows, "run")}</p>;
  return (
    <p class="runs-foot quiet">
      {list.isReadingMore.value ? (
        "Reading more runs …"
      ) : (
        <button type="button" class="link" onClick={() => void list.more()}>
          {filter.heldUp ? "Look through older runs" : "More runs"}
        </button>
      )}
    </p>
  );
}
