/** Discarding with a way back: the request goes out a while after the click, or when one leaves the page. */

import { signal } from "@preact/signals";
import { Refused, send } from "../service/requests";

export const UNDO_MS = 6000;
const AT_ONCE = 8;

interface Batch {
  readonly seqs: readonly number[];
  readonly timer: ReturnType<typeof setTimeout>;
}

/** What is to be discarded, and can still be taken back. */
export const waiting = signal<Batch | null>(null);

/** What lists leave out: what waits here, and what was discarded a moment ago. */
export const hidden = signal<ReadonlySet<number>>(new Set());

/** Why some of the last ones could not be discarded. */
export const problem = signal<string | null>(null);

export function discard(seqs: readonly number[]): void {
  sendNow();
  problem.value = null;
  hidden.value = new Set([...hidden.value, ...seqs]);
  waiting.value = { seqs, timer: setTimeout(sendNow, UNDO_MS) };
}

export function undo(): void {
  const batch = waiting.value;
  if (batch === null) return;
  clearTimeout(batch.timer);
  waiting.value = null;
  show(batch.seqs);
}

/** Sends what waits, if anything does: there is no way back any more. */
export function sendNow(): void {
  const batch = waiting.value;
  if (batch === null) return;
  clearTimeout(batch.timer);
  waiting.value = null;
  void sendAll(batch.seqs);
}

async function sendAll(seqs: readonly number[]): Promise<void> {
  const left = [...seqs];
  const failed: { seq: number; why: string }[] = [];
  async function next(): Promise<void> {
    for (let seq = left.shift(); seq !== undefined; seq = left.shift()) {
      try {
        await send(`/dead-letters/${seq}`, { method: "DELETE", keepalive: true });
      } catch (error) {
        const isGone = error instanceof Refused && error.status === 404;
        if (!isGone) failed.push({ seq, why: (error as Error).message });
      }
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  if (failed.length === 0) return;
  show(failed.map((one) => one.seq));
  problem.value = `${failed.length} could not be discarded: ${failed[0]!.why}`;
}

function show(seqs: readonly number[]): void {
  const back = new Set(seqs);
  hidden.value = new Set([...hidden.value].filter((seq) => !back.has(seq)));
}
