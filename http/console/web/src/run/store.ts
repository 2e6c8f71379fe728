/**
 * What the page of a run knows, kept up to date by the run's event stream. State comes from the service, which folds
 * the log; events give the times of the waterfall, and say when to ask for the state again.
 */

import { batch, signal, type Signal } from "@preact/signals";
import { follow, type Message } from "../service/live";
import { get, part, query, Refused, send } from "../service/requests";
import type { Explanation, Graph, Run, RunEvent } from "../service/types";
import { Spans } from "./model/spans";

const PAYLOAD_BYTES_MAX = 1024;
const EVENTS_PAGE = 500;
const ASK_AGAIN_MS = 120;
const EXPLAIN_MS = 5000;

export const ENDED: ReadonlySet<string> = new Set(["completed", "failed", "cancelled"]);

export class RunStore {
  readonly run: Signal<Run | null> = signal(null);
  readonly graph: Signal<Graph | null> = signal(null);
  readonly explanation: Signal<Explanation | null> = signal(null);
  readonly problem: Signal<Error | null> = signal(null);
  readonly connected = signal(true);
  /** All events that were read, in order. `grown` changes whenever some were added. */
  readonly events: RunEvent[] = [];
  readonly grown = signal(0);
  readonly complete = signal(false);
  spans = new Spans();

  private readonly path: string;
  private readonly abort = new AbortController();
  private stream: { stop: () => void } | null = null;
  private asking = false;
  private askAgain = false;
  private lastAsked = 0;
  private explainTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly runId: string) {
    this.path = `/runs/${part(runId)}`;
    void this.begin();
  }

  stop(): void {
    this.abort.abort();
    this.stream?.stop();
    clearTimeout(this.explainTimer);
  }

  /** Asks for the state now, as after an action, which may have the run go on. */
  refresh(): void {
    void this.catchUp();
    void this.explain();
  }

  /** Reads what has happened to a run that had ended, and follows it if it goes on. */
  private async catchUp(): Promise<void> {
    await this.ask();
    if (this.hasEnded && this.stream === null) await this.readEvents().catch(() => undefined);
    this.watch();
  }

  private get hasEnded(): boolean {
    return ENDED.has(this.run.value?.status ?? "");
  }

  private async begin(): Promise<void> {
    try {
      await Promise.all([this.ask(), this.readEvents()]);
    } catch (problem) {
      if (!this.abort.signal.aborted) this.problem.value = problem as Error;
      return;
    }
    void this.explain();
    this.watch();
  }

  /** Reads the history from what is known of it on, in pages; what is there can be looked at while the rest comes. */
  private async readEvents(): Promise<void> {
    const after = this.events.at(-1)?.seq ?? 0;
    const first = `${this.path}/events${query({ after, payload_max: PAYLOAD_BYTES_MAX, limit: EVENTS_PAGE })}`;
    for (let next: string | null = first; next !== null; ) {
      const answer: { data: RunEvent[]; next: string | null } = await send<RunEvent[]>(next, { signal: this.abort.signal });
      this.add(answer.data);
      next = answer.next;
    }
    this.complete.value = true;
  }

  private add(events: readonly RunEvent[]): void {
    let last = this.events.at(-1)?.seq ?? 0;
    let added = 0;
    for (const event of events) {
      if (event.seq <= last) continue;
      last = event.seq;
      this.events.push(event);
      this.spans.add(event);
      added += 1;
    }
    if (added > 0) this.grown.value += 1;
  }

  /** Follows the run while it has not ended; whoever has it go on again calls this again. */
  private watch(): void {
    if (this.stream !== null || this.hasEnded || this.abort.signal.aborted) return;
    this.stream = follow(`${this.path}/events${query({ payload_max: PAYLOAD_BYTES_MAX })}`, {
      after: String(this.events.at(-1)?.seq ?? ""),
      onMessages: (messages) => {
        this.add(messages.map(eventIn));
        void this.ask();
      },
      isOver: async () => {
        await this.ask();
        if (this.hasEnded) this.stream = null;
        return this.hasEnded;
      },
      onState: (connected) => {
        this.connected.value = connected;
        if (connected) void this.ask();
      },
    });
  }

  /** The state as it is now: one request at a time, and a short pause after each when events keep coming. */
  private async ask(): Promise<void> {
    if (this.asking) {
      this.askAgain = true;
      return;
    }
    this.asking = true;
    try {
      do {
        this.askAgain = false;
        const early = this.lastAsked + ASK_AGAIN_MS - performance.now();
        if (early > 0 && this.run.value !== null) await new Promise((resolve) => setTimeout(resolve, early));
        this.lastAsked = performance.now();
        const signal = this.abort.signal;
        const run = await get<Run>(`${this.path}${query({ payload_max: PAYLOAD_BYTES_MAX })}`, signal);
        const graph = this.needsGraph(run) ? await get<Graph>(`${this.path}/graph`, signal) : this.graph.value;
        batch(() => {
          this.run.value = run;
          this.graph.value = graph;
          this.problem.value = null;
        });
      } while (this.askAgain);
    } catch (problem) {
      if (this.run.value === null) throw problem;
      if (!this.abort.signal.aborted && problem instanceof Refused) this.problem.value = problem;
    } finally {
      this.asking = false;
    }
  }

  /** Plans, handlers and compensations add steps. */
  private needsGraph(run: Run): boolean {
    const known = this.graph.value;
    return known === null || known.nodes.length !== Object.keys(run.steps).length;
  }

  private async explain(): Promise<void> {
    clearTimeout(this.explainTimer);
    if (this.run.value === null || this.abort.signal.aborted) return;
    if (this.hasEnded) this.explanation.value = null;
    else if (!document.hidden) await this.askWhy();
    this.explainTimer = setTimeout(() => void (this.hasEnded ? this.lookAgain() : this.explain()), EXPLAIN_MS);
  }

  private async askWhy(): Promise<void> {
    try {
      this.explanation.value = await get<Explanation>(`${this.path}/explain`, this.abort.signal);
    } catch {
      this.explanation.value = null;
    }
  }

  /** A run that has failed goes on when somebody retries it elsewhere. */
  private async lookAgain(): Promise<void> {
    if (this.run.value?.status === "failed" && !document.hidden) await this.catchUp();
    void this.explain();
  }

}

function eventIn(message: Message): RunEvent {
  return { ...(JSON.parse(message.data) as RunEvent), seq: Number(message.id) };
}
