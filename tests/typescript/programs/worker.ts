// A worker whose functions do what their input says. Prints a line as a task begins, and what it learns while it waits:
// `worker URL [MAX_TASKS] [GRACE_MS] [WORKER_ID]`.
import { type Context, Continue, NonRetriable, Pause, RetryAfter, Worker } from "penstock";

const [url, maxTasks = "100", graceMs = "10000", workerId] = process.argv.slice(2);

function say(what: string, context: Context, about: unknown): void {
  console.log(JSON.stringify([what, context.runId, about]));
}

function fail(how: string, context: Context): unknown {
  say("begun", context, context.attempt);
  if (context.attempt > 1) return `attempt ${context.attempt}`;
  if (how === "for good") throw new NonRetriable("no such customer");
  if (how === "later") throw new RetryAfter(20, "rate limited");
  if (how === "unwritable") return { much: 1n };
  if (how === "too large") return "x".repeat(1_100_000);
  throw new TypeError("out of order");
}

async function wait(_: unknown, context: Context): Promise<unknown> {
  say("begun", context, context.attempt);
  try {
    const { count } = await context.waitSignal<{ count: number }>("go");
    say("ended", context, count);
    return count;
  } catch (error) {
    say("cancelled", context, error instanceof Error ? `${error.name}: ${error.message}` : error);
    throw error;
  }
}

async function draft(value: number, context: Context): Promise<Continue | { drafts: number; seen: unknown }> {
  if (value === 1 && context.loadCheckpoint() === undefined) throw new Pause(20, { checkpoint: { seen: value } });
  return value < 3 ? new Continue(value + 1) : { drafts: context.iteration, seen: context.loadCheckpoint() };
}

async function talk(words: string[], context: Context): Promise<number> {
  for (const word of words) context.stream(word);
  context.progress(1, 2, "half");
  context.log("talked", { words: words.length }, "warning");
  context.log("of what JSON cannot say", { much: 1n });
  await context.checkpoint({ words: words.length });
  await context.sendSignal(context.runId, "told", words);
  return (await context.waitSignal<string[]>("told", { timeoutMs: 20_000 })).length;
}

const worker = new Worker({ url, maxTasks: Number(maxTasks), graceMs: Number(graceMs), workerId })
  .task("ts.add", ({ left, right }: { left: number; right: number }) => left + right)
  .task("ts.twice", async (value: number) => value * 2)
  .task("ts.fail", fail)
  .task("ts.wait", wait)
  .task("ts.draft", draft)
  .task("ts.talk", talk);
process.once("SIGTERM", () => console.log(JSON.stringify(["stopping", "", 0])));
await worker.run();
