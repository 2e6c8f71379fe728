/** What one execution says while it runs: sent in order, together, and without holding up the function. */

import { randomUUID } from "node:crypto";
import type { Bridge } from "./bridge.js";
import type { Resolution } from "./types.js";

const WAITING_MAX = 1_000;
const AT_ONCE = 100;
const FLUSH_MS_MAX = 60_000;

export interface Line {
  text: string;
  level: string;
  at: string;
  fields: Readonly<Record<string, unknown>>;
}

export class Outbox {
  private readonly mark = randomUUID();
  private waiting: Resolution[] = [];
  private latest: Resolution | undefined;
  private dropped = { log: 0, stream: 0 };
  private said = 0;
  private sending: Promise<void> | undefined;

  constructor(
    private readonly bridge: Bridge,
    private readonly taskId: string,
    private readonly signal: AbortSignal,
  ) {}

  log(line: Line): void {
    if (this.waiting.length >= WAITING_MAX) {
      this.dropped.log += 1;
      return;
    }
    const lines = [asJson(line)];
    if (this.dropped.log > 0) {
      lines.unshift({ text: `… ${this.dropped.log} lines dropped`, level: "warning", at: line.at, fields: {} });
      this.dropped.log = 0;
    }
    this.say({ action: "log", data: lines, id: this.nextId() });
  }

  stream(chunk: unknown): void {
    if (this.waiting.length >= WAITING_MAX) {
      this.dropped.stream += 1;
      return;
    }
    const data: unknown = JSON.parse(JSON.stringify(chunk ?? null));
    const dropped = this.dropped.stream === 0 ? {} : { dropped: this.dropped.stream };
    this.dropped.stream = 0;
    this.say({ action: "stream", data, id: this.nextId(), ...dropped });
  }

  /** Only the latest is sent. */
  progress(data: { done: number; total: number | undefined; text: string | undefined }): void {
    this.latest = { action: "progress", data };
    this.start();
  }

  async flush(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, FLUSH_MS_MAX);
    });
    const sent = async (): Promise<void> => {
      while (this.sending !== undefined) await this.sending;
    };
    await Promise.race([sent(), late]);
    clearTimeout(timer);
  }

  private say(what: Resolution): void {
    this.waiting.push(what);
    this.start();
  }

  private start(): void {
    this.sending ??= this.send();
  }

  /** Until nothing waits. What the service refuses is left out: the answer to the task shows what is wrong with it. */
  private async send(): Promise<void> {
    await Promise.resolve(); // what is said in one go is sent together
    while (!this.signal.aborted && (this.waiting.length > 0 || this.latest !== undefined)) {
      const batch = this.waiting.splice(0, AT_ONCE);
      if (this.latest !== undefined) batch.push(this.latest);
      this.latest = undefined;
      await this.bridge.say(this.taskId, batch, this.signal).catch(() => undefined);
    }
    this.sending = undefined;
  }

  private nextId(): string {
    this.said += 1;
    return `${this.mark}.${this.said}`;
  }
}

/** As it is now: fields may change before it is sent. Those that JSON cannot say become a text, so that a log line never
 * fails a task. */
function asJson(line: Line): Line {
  try {
    return JSON.parse(JSON.stringify(line)) as Line;
  } catch (error) {
    return { ...line, fields: { unwritable: String(error) } };
  }
}
