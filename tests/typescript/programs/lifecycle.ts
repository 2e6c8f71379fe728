// Everything about runs that needs no worker; prints what came of it as one JSON document.
import { Client, ConflictError, InvalidError, NotFoundError, type Run, RunFailedError, type RunEvent } from "penstock";

const client = new Client({ url: process.argv[2] });

async function thrown(call: () => Promise<unknown>): Promise<[string, number | undefined, readonly string[]]> {
  try {
    await call();
  } catch (error) {
    const kinds = [InvalidError, NotFoundError, ConflictError, RunFailedError];
    const found = kinds.find((kind) => error instanceof kind);
    if (found === undefined) throw error;
    const { status, problems } = error as InvalidError;
    return [found.name, status, problems];
  }
  return ["nothing", undefined, []];
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

await client.register({ name: "consent", steps: [{ id: "ask", type: "approval", config: { timeout: "1h" } }] });
await client.register({ name: "nap", steps: [{ id: "rest", type: "sleep", config: { duration: "1ms" } }] });

const asked = client.run<{ approved_by: string }>("consent", { amount: 12 }, { labels: { team: "payments" } });
const askedId = await asked.id;
let open = await all(client.approvals({ workflow: "consent" }));
while (open.length === 0) open = await all(client.approvals({ workflow: "consent" }));
const decided = await client.approve(askedId, "ask", { approved_by: "ann" });
const decision = await asked.result({ timeoutMs: 30_000 });
const twice = await thrown(() => client.approve(askedId, "ask"));

const same = await Promise.all([1, 2].map(() => client.start("nap", null, { idempotencyKey: "nap-1" })));
const many = await client.bulk("nap", [1, 2, 3]);
const naps: RunEvent[] = await all(client.events(many.run_ids[0] as string));
for (const id of [...many.run_ids, same[0]?.run_id as string]) await client.handle(id).result({ timeoutMs: 30_000 });
const listed: Run[] = await all(client.runs({ workflow: "nap" }));
const two = await all(client.runs({ workflow: "nap", max: 2 }));
const paged = await all(client.history(many.run_ids[0] as string, { max: 2 }));

const dropped = client.run("consent");
const sent = await client.signal(await dropped.id, "paper", { sheets: 500 });
const paused = await client.pause(await dropped.id);
await client.resume(await dropped.id);
await client.cancel(await dropped.id, { reason: "changed my mind" });
const called = await client.call("nap", null, { timeoutMs: 20_000 });

console.log(
  JSON.stringify({
    approval: [open[0]?.step_id, decided.status, decision.approved_by],
    twice,
    same: same[0]?.run_id === same[1]?.run_id,
    events: naps.map((event) => event.type),
    ascending: naps.every((event, at) => at === 0 || event.seq > (naps[at - 1] as RunEvent).seq),
    listed: listed.length,
    two: two.length,
    paged: paged.length,
    sent: sent.signal,
    paused: paused.paused_at !== undefined,
    cancelled: await thrown(() => dropped.result()),
    called: [called.outcome, called.status, called.body],
    unknown: await thrown(() => client.getRun("0".repeat(32))),
    invalid: await thrown(() => client.register({ name: "none", steps: [] })),
    wrongWorkflow: await thrown(() => client.run("nobody-has-it").result()),
  }),
);
