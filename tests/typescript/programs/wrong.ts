// What a worker refuses before it works: prints the errors.
import { Worker } from "penstock";

async function refused(call: () => unknown): Promise<void> {
  try {
    await call();
    console.log("not refused");
  } catch (error) {
    console.log(String(error));
  }
}

await refused(() => new Worker({ maxTasks: 0 }));
await refused(() => new Worker({ maxTasks: 1.5 }));
await refused(() => new Worker({ url: "localhost" }));
await refused(() => new Worker().task("a", () => 1).task("a", () => 2));
await refused(() => new Worker().start());
