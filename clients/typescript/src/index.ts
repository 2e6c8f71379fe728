/** Client and worker of the penstock workflow service. Start reading at client.ts, or at worker.ts. */

export type { components, operations, paths } from "./api.js";
export * from "./client.js";
export type { ConnectionOptions } from "./connection.js";
export { Context, type Level } from "./context.js";
export * from "./errors.js";
export type { FollowOptions } from "./following.js";
export * from "./outcomes.js";
export { type ResultOptions, RunHandle } from "./run.js";
export type * from "./types.js";
export * from "./worker.js";
