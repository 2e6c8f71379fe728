/** What was looked at last, which the browser remembers. */

import { effect } from "@preact/signals";
import { address, place } from "../shell/router";

export interface Visit {
  readonly kind: string;
  readonly name: string;
  readonly path: string;
}

const KEY = "recent";
const MOST = 12;
const KINDS: Readonly<Record<string, string>> = { runs: "Run", workflows: "Workflow", triggers: "Trigger", limits: "Limit" };

export function recent(): Visit[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter(isVisit).slice(0, MOST) : [];
  } catch {
    return [];
  }
}

const isVisit = (one: unknown): one is Visit => {
  const { kind, name, path } = (one ?? {}) as Partial<Visit>;
  return typeof kind === "string" && typeof name === "string" && typeof path === "string" && address(path).startsWith(address("/"));
};

/** Remembers each run, workflow, trigger and limit that is opened. */
export function rememberVisits(): void {
  effect(() => {
    const path = place.value.path;
    const [, folder, name] = /^\/([^/]+)\/([^/]+)$/.exec(path) ?? [];
    const kind = KINDS[folder ?? ""];
    if (kind === undefined || name === undefined) return;
    const visit = { kind, name: decodeURIComponent(name), path };
    localStorage.setItem(KEY, JSON.stringify([visit, ...recent().filter((one) => one.path !== path)].slice(0, MOST)));
  });
}
