/** The worker bridge: one method for each thing that a worker asks of the service. */

import { setTimeout as sleep } from "node:timers/promises";
import type { components } from "./api.js";
import { type Connection, path, pauseMs } from "./connection.js";
import { errorOfStatus, NotFoundError, UnauthorizedError, UnavailableError } from "./errors.js";
import type { ServerEvent } from "./server_events.js";
import type { PolledTask, Resolution, TaskAnswer } from "./types.js";

type Schemas = components["schemas"];

const SILENCE_MS = 15_000; // the stream has a line every 5 s
const GIVEN_UP = 409;

export class Bridge {
  constructor(private readonly connection: Connection) {}

  /** Registered while it is iterated; `opened` is called when it is. */
  connected(
    entry: Schemas["ConnectWorker"],
    signal: AbortSignal,
    opened: () => void,
  ): AsyncGenerator<ServerEvent, void, undefined> {
    const request = { body: entry, silenceMs: SILENCE_MS, signal, opened };
    return this.connection.stream("POST", "/v1/workers/connect", request);
  }

  poll(request: Schemas["PollTasks"], signal: AbortSignal): Promise<PolledTask[]> {
    return this.connection.json("POST", "/v1/tasks/poll", { body: request, waitMs: request.timeout_ms, signal });
  }

  /** A sign of life of each task, once. Returns those that were given up, with the reason. */
  async heartbeats(taskIds: readonly string[]): Promise<Map<string, string>> {
    const resolved = await this.exchange(taskIds.map((task_id) => ({ task_id, action: "heartbeat" })));
    const over = resolved.filter((one) => one.code === GIVEN_UP);
    return new Map(over.map((one) => [one.task_id, one.error ?? "given up"]));
  }

  /** Answer a task, once. */
  async resolve(taskId: string, resolution: Resolution): Promise<void> {
    await this.connection.json("POST", path`/v1/tasks/${taskId}/resolve`, { body: resolution });
  }

  /** As `resolve`, again and again until the service has taken or refused it. */
  async untilStored(taskId: string, resolution: Resolution, signal?: AbortSignal): Promise<void> {
    await untilAvailable(() => this.resolve(taskId, resolution), signal);
  }

  /** Several things about one task, in their order, again and again until each is stored or refused. What has an id is
   * stored once. */
  async say(taskId: string, said: readonly Resolution[], signal: AbortSignal): Promise<void> {
    const entries = said.map((one): TaskAnswer => ({ ...one, task_id: taskId }));
    await untilAvailable(async () => {
      const failed = (await this.exchange(entries)).find((one) => one.code !== undefined && one.code >= 500);
      if (failed?.code !== undefined) throw errorOfStatus(failed.code, failed.error ?? "");
    }, signal);
  }

  /** The payload of a run's signal; undefined if there was none in time. */
  async signal(runId: string, name: string, timeoutMs: number, signal: AbortSignal): Promise<Uint8Array | undefined> {
    const where = path`/v1/runs/${runId}/signals/${name}`;
    const request = { query: { timeout_ms: timeoutMs }, waitMs: timeoutMs, signal };
    const take = async (answer: Response): Promise<Uint8Array | undefined> =>
      answer.status === 204 ? undefined : new Uint8Array(await answer.arrayBuffer());
    return untilAvailable(() => this.connection.repeated("GET", where, request, take), signal);
  }

  async sendSignal(runId: string, name: string, payload: unknown, signal: AbortSignal): Promise<void> {
    const where = path`/v1/runs/${runId}/signals/${name}`;
    await untilAvailable(() => this.connection.json("POST", where, { body: payload, signal }), signal);
  }

  private async exchange(entries: readonly TaskAnswer[]): Promise<Schemas["ResolvedTask"][]> {
    const body = { resolve: entries };
    return (await this.connection.json<Schemas["Exchanged"]>("POST", "/v1/tasks/exchange", { body })).resolved;
  }
}

/** What `ask` gives; it is asked again while the service is not available, or refuses the token for a while. */
async function untilAvailable<T>(ask: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  for (let failures = 0; ; failures += 1) {
    try {
      return await ask();
    } catch (error) {
      signal?.throwIfAborted();
      if (!mayPass(error)) throw error;
      await sleep(Math.min(pauseMs(failures), 2_000), undefined, { signal });
    }
  }
}

function mayPass(error: unknown): boolean {
  if (error instanceof NotFoundError) return false;
  const status = (error as { status?: number }).status ?? 0;
  return error instanceof UnavailableError || error instanceof UnauthorizedError || status >= 500;
}
