/** Who serves what, out of the list of workers and that of task queues. */

import type { TaskQueue, Worker } from "../service/types";

/** Workers that serve the same task types of the same group: they share the tasks among themselves. */
export interface Team {
  readonly key: string;
  readonly types: readonly string[];
  readonly group: string | null;
  readonly workers: readonly Worker[];
  /** How many tasks all of them hold at one time, at most. */
  readonly slots: number;
  /** Tasks of these types that a worker has now; those of other teams are among them if `shared`. */
  readonly busy: number;
  /** Whether other teams serve one of these types, too: then the service cannot tell whose a task is. */
  readonly shared: boolean;
}

const kind = (task: string, group: string | null | undefined): string => `${group ?? ""}\n${task}`;

export function teams(workers: readonly Worker[], queues: readonly TaskQueue[]): Team[] {
  const found = new Map<string, Worker[]>();
  for (const worker of workers) {
    const key = JSON.stringify([worker.worker_group ?? null, [...worker.task_types].sort()]);
    found.set(key, [...(found.get(key) ?? []), worker]);
  }
  const inHand = new Map(queues.map((queue) => [kind(queue.task, queue.worker_group), queue.in_hand]));
  const servedBy = new Map<string, number>();
  for (const key of found.keys()) for (const one of kindsOf(key)) servedBy.set(one, (servedBy.get(one) ?? 0) + 1);
  return [...found].map(([key, members]) => {
    const [group, types] = JSON.parse(key) as [string | null, string[]];
    const kinds = kindsOf(key);
    return {
      key,
      types,
      group,
      workers: [...members].sort((one, other) => one.worker_id.localeCompare(other.worker_id)),
      slots: members.reduce((sum, worker) => sum + (worker.max_tasks ?? 1), 0),
      busy: kinds.reduce((sum, one) => sum + (inHand.get(one) ?? 0), 0),
      shared: kinds.some((one) => servedBy.get(one)! > 1),
    };
  });
}

function kindsOf(key: string): string[] {
  const [group, types] = JSON.parse(key) as [string | null, string[]];
  return types.map((type) => kind(type, group));
}

/** Those that nobody serves first, then those with most tasks. */
export function byNeed(queues: readonly TaskQueue[]): TaskQueue[] {
  return [...queues].sort(
    (one, other) =>
      Number(one.workers > 0) - Number(other.workers > 0) ||
      other.waiting + other.in_hand - (one.waiting + one.in_hand) ||
      one.task.localeCompare(other.task),
  );
}
