/** What a task function throws or returns to say more than "done" or "failed". */

/** The step fails for good: another attempt would fail, too. */
export class NonRetriable extends Error {
  override name = "NonRetriable";
}

/** The attempt has failed, and the next one comes after this time. It uses up a retry. */
export class RetryAfter extends Error {
  override name = "RetryAfter";

  constructor(
    readonly delayMs: number,
    message: string,
  ) {
    super(message);
  }
}

/** The task is given back and delivered again after this time, at most an hour, as the same attempt. */
export class Pause extends Error {
  override name = "Pause";

  constructor(
    readonly delayMs: number,
    readonly options: { checkpoint?: unknown; name?: string } = {},
  ) {
    super(options.name ?? `paused for ${delayMs} ms`);
  }
}

/** Returned by the function of an `agent_loop` step: another iteration follows, with `value` as its input. */
export class Continue<T = unknown> {
  constructor(readonly value: T) {}
}

/** The result of this execution is not wanted any more. */
export class TaskCancelled extends Error {
  override name = "TaskCancelled";
}
