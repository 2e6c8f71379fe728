/** What is read off a limit: its address, and what it allows, in words. */

import { part } from "../service/requests";
import type { Limit, LimitOverride } from "../service/types";
import { quoted } from "../parts/dialog";
import { count } from "../parts/sizes";

export type Kind = Limit["kind"];

/** Which limit is meant. Without `kind` the service finds the only one of the scope. */
export interface Which {
  readonly scope: string;
  readonly kind?: string | null;
  readonly key?: string | null;
}

export const KIND_WORDS: Readonly<Record<string, string>> = { runs: "runs", executions: "executions", rate: "rate" };

/** Also a key without a character is one. */
function asked({ kind, key }: Which): string {
  const found = new URLSearchParams();
  if (kind !== null && kind !== undefined) found.set("kind", kind);
  if (key !== null && key !== undefined) found.set("key", key);
  const text = found.toString();
  return text === "" ? "" : `?${text}`;
}

/** The path of the limit, of the API as well as below the console. */
export const pathOf = (which: Which): string => `/limits/${part(which.scope)}${asked(which)}`;

/** The options of the command line that say which limit is meant. */
export function optionsOf({ scope, kind, key }: Which): string {
  const ofKey = key === null || key === undefined ? "" : ` --key ${quoted(key)}`;
  return `${quoted(scope)}${ofKey}${kind ? ` --kind ${kind}` : ""}`;
}

/** "2 runs at a time", "10 in 1m, 3 at once". */
export function allowed(kind: string, limit: number, rate: { readonly limit: number; readonly per: string; readonly burst?: number | null } | null | undefined): string {
  if (rate) return `${count(rate.limit)} in ${rate.per}${rate.burst ? `, ${count(rate.burst)} at once` : ""}`;
  const one = kind === "executions" ? "execution" : "run";
  return `${count(limit)} ${limit === 1 ? one : `${one}s`} at a time`;
}

export const allowedBy = (limit: Limit): string => allowed(limit.kind, limit.limit, limit.rate_limit);

/** What PUT reads of an override, so that it counts again. */
export const bodyOf = (override: Pick<LimitOverride, "limit" | "rate_limit">): object => (override.rate_limit ? { rate_limit: override.rate_limit } : { limit: override.limit });

/** The override of this limit itself, not that of all keys. */
export function ownOverride(limit: Limit): LimitOverride | null {
  const found = limit.override ?? null;
  return found !== null && (found.key ?? null) === (limit.key ?? null) ? found : null;
}

/** Tokens come in parts; only whole ones let something begin. */
export const wholeTokens = (tokens: number | null | undefined): number => Math.max(0, Math.floor((tokens ?? 0) + 1e-6));
