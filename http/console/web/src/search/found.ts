/** What a text finds: things that were looked at, pages, commands, workflows, triggers, limits, and runs by id or label. */

import { shortId } from "../parts/copy";
import { inUtc } from "../parts/times";
import { part, query } from "../service/requests";
import type { Limit, Run, Trigger } from "../service/types";
import { pathOf } from "../limits/model";
import { PAGES } from "../shell/layout";
import { go } from "../shell/router";
import { opened } from "../shell/keys";
import { theme, THEMES } from "../shell/theme";
import type { Visit } from "./recent";

export interface Found {
  /** Differs from that of all others. */
  readonly id: string;
  readonly kind: string;
  readonly label: string;
  readonly hint?: string;
  readonly act: () => void;
}

export interface Known {
  readonly visits: readonly Visit[];
  readonly workflows: readonly { name: string }[];
  readonly triggers: readonly Trigger[];
  readonly limits: readonly Limit[];
  /** Those that the service has found by the text. */
  readonly runs: readonly Run[];
  /** The buttons of the page that is open. */
  readonly actions: readonly HTMLElement[];
}

const EACH_MAX = 6;
const RUNS_MAX = 8;

export function found(text: string, known: Known): Found[] {
  const wanted = text.trim().toLowerCase();
  const visits = matching(wanted, known.visits, (one) => one.name).map((one) => leading(one.kind, one.kind === "Run" ? shortId(one.name) : one.name, one.path, "recent"));
  const all = [
    ...(wanted === "" ? visits.slice(0, EACH_MAX) : visits.slice(0, 3)),
    ...matching(wanted, actionsOf(known.actions), (one) => one.label),
    ...matching(wanted, known.workflows, (one) => one.name).slice(0, wanted === "" ? 0 : EACH_MAX).map((one) => leading("Workflow", one.name, `/workflows/${part(one.name)}`)),
    ...matching(wanted, known.triggers, (one) => one.name).slice(0, wanted === "" ? 0 : EACH_MAX).map((one) => leading("Trigger", one.name, `/triggers/${part(one.name)}`, one.workflow)),
    ...matching(wanted, known.limits, limitName).slice(0, wanted === "" ? 0 : EACH_MAX).map((one) => leading("Limit", limitName(one), pathOf(one), one.waiting_total > 0 ? `${one.kind} · ${one.waiting_total} waiting` : one.kind)),
    ...(wanted === "" ? [] : [...labelsOf(wanted, known.runs), ...runsOf(known.runs)]),
    ...matching(wanted, commands(), (one) => one.label),
  ];
  const ids = new Set<string>();
  return all.filter((one) => !ids.has(one.id) && ids.add(one.id));
}

const limitName = ({ scope, key }: Limit): string => ((key ?? null) === null ? scope : `${scope} · ${key}`);

/** Those whose name has the text: first those that begin with it. */
function matching<T>(wanted: string, all: readonly T[], name: (one: T) => string): T[] {
  const at = (one: T): number => name(one).toLowerCase().indexOf(wanted);
  return all.filter((one) => at(one) >= 0).sort((a, b) => Math.min(1, at(a)) - Math.min(1, at(b)));
}

const leading = (kind: string, label: string, path: string, hint?: string): Found => ({
  id: path,
  kind,
  label,
  ...(hint !== undefined && { hint }),
  act: () => go(path),
});

const runsOf = (runs: readonly Run[]): Found[] =>
  runs.slice(0, RUNS_MAX).map((run) => leading("Run", shortId(run.run_id), `/runs/${part(run.run_id)}`, `${run.workflow_id} · ${run.status}`));

/** The labels of these runs that have the text. */
function labelsOf(wanted: string, runs: readonly Run[]): Found[] {
  const texts = new Set(runs.flatMap((run) => Object.entries(run.labels ?? {}).map(([key, value]) => `${key}:${value}`)));
  return [...texts]
    .filter((text) => text.toLowerCase().includes(wanted))
    .slice(0, EACH_MAX)
    .map((text) => leading("Label", text, `/runs${query({ label: text })}`, "runs with it"));
}

function actionsOf(buttons: readonly HTMLElement[]): Found[] {
  return buttons.map((button) => {
    const label = button.textContent?.trim() ?? "";
    return { id: `action ${label}`, kind: "Action", label, hint: "on this page", act: () => button.click() };
  });
}

function commands(): Found[] {
  return [
    ...PAGES.map((page) => ({ ...leading("Page", page.label, page.path), hint: `g ${page.key}` })),
    ...THEMES.filter((one) => one !== theme.peek()).map((one) => ({ id: `theme ${one}`, kind: "Command", label: `Theme: ${one}`, act: () => void (theme.value = one) })),
    { id: "utc", kind: "Command", label: inUtc.peek() ? "Show local time" : "Show times in UTC", act: () => void (inUtc.value = !inUtc.peek()) },
    { id: "keys", kind: "Command", label: "Show the keys", hint: "?", act: () => void (opened.value = "keys") },
  ];
}
