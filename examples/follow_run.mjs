// The same as follow_run.py in JavaScript: npm install @nats-io/transport-node @nats-io/jetstream
//   node follow_run.mjs RUN_ID           from the beginning, with a consumer on the history
//   node follow_run.mjs --live RUN_ID    from now on, without a consumer
import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

const ENDS = ["workflow.completed", "workflow.failed", "workflow.cancelled"];
const live = process.argv.includes("--live");
const runId = process.argv.at(-1);

async function* replayed(broker) {
  // stored under history.<partition>.<run_id>: the consumer's filter names any partition
  const consumer = await jetstream(broker).consumers.get("WORKFLOW_HISTORY", { filter_subjects: [`history.*.${runId}`] });
  for await (const message of await consumer.consume()) yield [message.seq, message.json()];
}

async function* copied(broker) {
  const copies = broker.subscribe(`watch.${runId}`);
  await broker.flush();
  console.error("following", runId);
  for await (const message of copies) yield [message.headers.get("Nats-Sequence"), message.json()];
}

const address = new URL(process.env.SERVICE_BROKER_URL ?? "nats://127.0.0.1:4222");
const broker = await connect({ servers: address.host, user: address.username || undefined, pass: address.password || undefined });
for await (const [sequence, event] of (live ? copied : replayed)(broker)) {
  console.log(sequence, event.timestamp, event.type, event.step_id ?? "");
  if (ENDS.includes(event.type)) break;
}
await broker.close();
