/** What the page knows of dead letters: their reasons, what can be replayed, and the commands for many. */

import { Refused, post } from "../service/requests";
import type { DeadLetter } from "../service/types";

/** The first line of the error: letters with the same one have failed for the same reason. */
export const reasonOf = (letter: DeadLetter): string => letter.error.split("\n", 1)[0]!.trim() || "no error text";

export interface Reason {
  readonly text: string;
  readonly count: number;
}

/** By how many letters have them, most first. */
export function reasons(letters: readonly DeadLetter[]): Reason[] {
  const found = new Map<string, number>();
  for (const letter of letters) found.set(reasonOf(letter), (found.get(reasonOf(letter)) ?? 0) + 1);
  return [...found].map(([text, count]) => ({ text, count })).sort((one, other) => other.count - one.count || one.text.localeCompare(other.text));
}

/** One letter of each run: a replay of it takes all of its run along. Only tasks can be replayed. */
export function toReplay(letters: readonly DeadLetter[]): DeadLetter[] {
  const byRun = new Map<string, DeadLetter>();
  for (const letter of letters) if (letter.kind === "task" && letter.run_id) byRun.set(letter.run_id, letter);
  return [...byRun.values()];
}

const AT_ONCE = 4;

/** Replays all of them and says how many were refused, and why. Throws the reason when all were. */
export async function replayAll(letters: readonly DeadLetter[]): Promise<{ replayed: number; refused: string[] }> {
  const left = [...letters];
  const refused: string[] = [];
  async function next(): Promise<void> {
    for (let letter = left.shift(); letter !== undefined; letter = left.shift()) {
      try {
        await post(`/dead-letters/${letter.seq}/replay`);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        refused.push(error.message);
      }
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  if (refused.length > 0 && refused.length === letters.length) throw new Error([...new Set(refused)].slice(0, 5).join("\n"));
  return { replayed: letters.length - refused.length, refused };
}

/** The same for many on the command line, and with curl. */
export function commandsFor(action: "replay" | "discard", seqs: readonly number[]): string[] {
  const list = seqs.join(" ");
  const url = `${location.origin}/dead-letters/$seq`;
  const curl = action === "replay" ? `curl -s -X POST "${url}/replay"` : `curl -s -X DELETE "${url}"`;
  if (seqs.length === 1) return [`penstock dlq ${action} ${list}`, curl.replace("$seq", list)];
  return [`for seq in ${list}; do penstock dlq ${action} $seq; done`, `for seq in ${list}; do ${curl}; done`];
}
