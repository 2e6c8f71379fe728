/** The runs of the page as they were read so far, kept up to date without moving what somebody reads. */

import { signal } from "@preact/signals";
import { ask, send, type Answer } from "../service/requests";
import type { RunSummary } from "../service/types";

const EVERY_MS = 2000;
const EXPLAINED_EVERY = 3; // polls: to find the reasons costs more than to list
const AGE_MAX_S = 1; // of an answer that others got
const REASONS_AGE_MAX_S = 3;
const SLOW_SHARE = 8; // a service that answers slowly is asked less often
export const ROWS_MAX = 10_000;
const ENDED = new Set(["completed", "failed", "cancelled"]);

export interface Row {
  readonly run: RunSummary;
  /** It does not match the filter any more, and goes as soon as nobody reads. */
  readonly gone: boolean;
  /** It has come while the page was open. */
  readonly isNew: boolean;
}

interface Part {
  readonly path: string;
  readonly firstId: string | undefined;
}

/** Belongs to one filter: another one makes another list. */
export class RunList {
  readonly rows = signal<readonly Row[]>([]);
  /** Runs that have come and are not shown yet, because somebody reads. */
  readonly waiting = signal<readonly RunSummary[]>([]);
  readonly problem = signal<Error | null>(null);
  readonly isRead = signal(false);
  readonly isReadingMore = signal(false);
  /** Whether the service has more runs than were read. */
  readonly hasMore = signal(false);

  private next: string | null = null;
  private parts: Part[] = [];
  private seen = 0;
  private polls = 0;
  /** Whether an open run stands where it stood before: only then there is something to explain. */
  private stands = false;
  private stopped = false;
  /** The last answers, by path. */
  private readonly answers = new Map<string, Answer<RunSummary[]>>();
  private shown: Answer<RunSummary[]> | null = null;
  /** The first page, when so many runs have come that it has none of those that are shown. */
  private anew: { readonly found: readonly RunSummary[]; readonly next: string | null } | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly abort = new AbortController();

  constructor(
    private readonly path: string,
    /** Whether somebody reads, so that no row may move. */
    private readonly isBusy: () => boolean,
  ) {
    document.addEventListener("visibilitychange", this.wake);
    void this.poll();
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.wake);
    this.abort.abort();
  }

  /** Asks now, as after an action, for what is there now. */
  refresh(): void {
    void this.poll(0);
  }

  /** Says which row is at the middle of the window: the runs around it are kept up to date. */
  look(index: number): void {
    this.seen = index;
  }

  /** Reads the next page. */
  async more(): Promise<void> {
    if (this.next === null || this.isReadingMore.peek() || this.rows.peek().length >= ROWS_MAX) return;
    this.isReadingMore.value = true;
    const path = this.next;
    try {
      const answer = await send<RunSummary[]>(path, { signal: this.abort.signal });
      this.parts.push({ path, firstId: answer.data[0]?.run_id });
      const known = new Set(this.rows.peek().map((row) => row.run.run_id));
      const added = answer.data.filter((run) => !known.has(run.run_id));
      this.rows.value = [...this.rows.peek(), ...added.map((run) => ({ run, gone: false, isNew: false }))];
      this.take(answer.next);
      this.problem.value = null;
    } catch (problem) {
      if (!this.stopped) this.problem.value = problem as Error;
    } finally {
      this.isReadingMore.value = false;
    }
  }

  /** Shows what has come meanwhile, and drops what does not match any more. */
  settle(): void {
    if (this.anew !== null) return this.begin(this.anew.found, this.anew.next);
    const came = this.waiting.peek();
    const kept = this.rows.peek().filter((row) => !row.gone);
    if (came.length === 0 && kept.length === this.rows.peek().length) return;
    this.rows.value = merged(kept, came);
    this.waiting.value = [];
  }

  private readonly wake = (): void => {
    if (!document.hidden) void this.poll();
  };

  private async poll(ageMax = AGE_MAX_S): Promise<void> {
    clearTimeout(this.timer);
    const begun = performance.now();
    const withReasons = this.polls++ % EXPLAINED_EVERY === 1 && this.stands;
    const explained = (path: string) => (withReasons ? `${path}&explain=true` : path);
    try {
      const path = explained(this.path);
      const before = this.answers.get(path) ?? null;
      const answer = await ask<RunSummary[]>(path, { ageMax: withReasons ? REASONS_AGE_MAX_S * ageMax : this.isRead.peek() ? ageMax : 0, before }, this.abort.signal);
      if (this.stopped) return;
      this.answers.set(path, answer);
      if (!this.isRead.peek()) this.begin(answer.data, answer.next);
      else if (answer !== this.shown) this.renew(answer.data, answer.next, { isFirst: true, withReasons });
      else this.unchanged();
      this.shown = answer;
      const part = this.partSeen();
      if (part !== null) this.renew((await ask<RunSummary[]>(explained(part.path), { ageMax }, this.abort.signal)).data, null, { isFirst: false, withReasons });
      this.problem.value = null;
    } catch (problem) {
      if (!this.stopped) this.problem.value = problem as Error;
    }
    // What is seen first has no reasons yet: they follow at once.
    const pause = this.polls === 1 ? 0 : Math.max(EVERY_MS, SLOW_SHARE * (performance.now() - begun));
    clearTimeout(this.timer);
    if (!this.stopped && !document.hidden) this.timer = setTimeout(() => void this.poll(), pause);
  }

  private begin(found: readonly RunSummary[], next: string | null): void {
    this.rows.value = found.map((run) => ({ run, gone: false, isNew: false }));
    this.waiting.value = [];
    this.parts = [];
    this.anew = null;
    this.stands = found.some(isOpen);
    this.take(next);
    this.isRead.value = true;
  }

  private unchanged(): void {
    this.stands = this.rows.peek().some((row) => isOpen(row.run));
    if (!this.isBusy()) this.settle();
  }

  private take(next: string | null): void {
    this.next = next;
    this.hasMore.value = next !== null;
  }

  /** The page behind the first that is seen, if one is. */
  private partSeen(): Part | null {
    const rows = this.rows.peek();
    const index = new Map(rows.map((row, number) => [row.run.run_id, number]));
    let found: Part | null = null;
    for (const part of this.parts) {
      const first = part.firstId === undefined ? undefined : index.get(part.firstId);
      if (first !== undefined && first <= this.seen) found = part;
    }
    return found;
  }

  /** Takes over what a page says now. Only the first page tells what is new, or does not match any more. */
  private renew(found: readonly RunSummary[], next: string | null, { isFirst, withReasons }: { isFirst: boolean; withReasons: boolean }): void {
    const now = new Map(found.map((run) => [run.run_id, run]));
    const last = found.at(-1);
    const isWithin = (run: RunSummary): boolean => isFirst && (next === null || (last !== undefined && !isBefore(last, run)));
    const before = this.rows.peek();
    const rows = before.map((row) => {
      const run = now.get(row.run.run_id);
      if (run !== undefined) return { ...row, run: withReasons ? run : withReason(run, row.run), gone: false };
      return isWithin(row.run) ? { ...row, gone: true } : row;
    });
    if (isFirst) {
      this.stands = before.some((row) => isOpen(row.run) && !hasMoved(now.get(row.run.run_id) ?? row.run, row.run));
      const known = new Set(before.map((row) => row.run.run_id));
      this.waiting.value = found.filter((run) => !known.has(run.run_id));
      this.anew = next !== null && before.length > 0 && this.waiting.value.length === found.length && found.length > 0 ? { found, next } : null;
      if (before.length === 0 || next === null) this.take(next);
    }
    this.rows.value = rows;
    if (!this.isBusy()) this.settle();
  }
}

const isOpen = (run: RunSummary): boolean => !ENDED.has(run.status);
const hasMoved = (run: RunSummary, before: RunSummary): boolean =>
  run.status !== before.status || run.paused_at !== before.paused_at || JSON.stringify(run.steps) !== JSON.stringify(before.steps);

/** Keeps the reason that was found before for a run that still stands where it stood. */
function withReason(run: RunSummary, before: RunSummary): RunSummary {
  if (run.waiting || !before.waiting || hasMoved(run, before)) return run;
  return { ...run, waiting: before.waiting, held_up: before.held_up === true };
}

/** A list runs from new to old: whether `one` comes before `other` there. */
const isBefore = (one: RunSummary, other: RunSummary): boolean =>
  one.created_at > other.created_at || (one.created_at === other.created_at && one.run_id > other.run_id);

function merged(rows: readonly Row[], came: readonly RunSummary[]): Row[] {
  const all = [...rows, ...came.map((run) => ({ run, gone: false, isNew: true }))];
  return all.sort((one, other) => (isBefore(one.run, other.run) ? -1 : 1)).slice(0, Math.max(rows.length, ROWS_MAX));
}
