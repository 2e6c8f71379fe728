// Starts a run, or sends a signal, which has no key; prints the run's id or the error: `start URL [RETRIES] [signal]`.
import { Client, NotFoundError, UnavailableError, UnreachableError } from "penstock";

const [url, retries = "5", what = "start"] = process.argv.slice(2);
const client = new Client({ url, retries: Number(retries) });
try {
  if (what === "start") console.log((await client.start("nap", { n: 1 })).run_id);
  await client.signal("0".repeat(32), "none");
} catch (error) {
  if (error instanceof NotFoundError) console.log("no such run");
  else if (error instanceof UnreachableError) console.log("unreachable");
  else if (error instanceof UnavailableError) console.log("unavailable");
  else throw error;
}
