// Prints the type and sequence of each event of a run as it comes, then the run's output.
import { Client } from "penstock";

const [url, runId = ""] = process.argv.slice(2);
const run = new Client({ url }).handle(runId);
for await (const event of run.events()) console.log(event.seq, event.type);
console.log(JSON.stringify(await run.result({ timeoutMs: 60_000 })));
