/** The list of limits: what each allows, how much of it is taken, and how many wait. */

import { Empty, Problem, Waiting } from "../parts/messages";
import { count, plural } from "../parts/sizes";
import { usePolled } from "../service/polled";
import { part } from "../service/requests";
import type { Limit, LimitRegistered } from "../service/types";
import { address, place, setParams } from "../shell/router";
import { allowed, allowedBy, KIND_WORDS, pathOf, wholeTokens } from "./model";

const EVERY_MS = 2000;
const LISTED_MAX = 500;
const BAR_PX = 64;

export function LimitsPage() {
  const limits = usePolled<Limit[]>(`/limits?limit=${LISTED_MAX}`, EVERY_MS);
  const text = place.value.params.get("q") ?? "";
  if (limits.data === null) return limits.problem === null ? <Waiting what="limits" /> : <Problem problem={limits.problem} />;
  const wanted = text.toLowerCase();
  const shown = limits.data.filter((one) => one.scope.toLowerCase().includes(wanted) || (one.key ?? "").toLowerCase().includes(wanted));
  return (
    <div class="list-page">
      <header class="list-head">
        <h1>Limits</h1>
        <span class="quiet">
          {count(limits.data.length)}
          {limits.data.length === LISTED_MAX ? "+" : ""}
        </span>
        {limits.problem !== null && <span class="badge warn">connection lost, trying again</span>}
        <input type="search" aria-label="Find limits by scope or key" placeholder="Find by scope or key" value={text} onInput={(event) => setParams({ q: event.currentTarget.value }, { replace: true })} />
      </header>
      {limits.data.length === 0 ? <None /> : shown.length === 0 ? <Empty title="No limit has such a scope or key." /> : <Table shown={shown} />}
    </div>
  );
}

function None() {
  return (
    <Empty title="No workflow has a limit yet.">
      <p>
        A limit says how many runs of a workflow, or executions of a step, go on at a time, or how many begin in a time. What finds no place waits, and is shown here. A definition has one with the
        field <code>concurrency</code> or <code>rate_limit</code>:
      </p>
      <pre class="limit-sample">{'"concurrency": [{"limit": 2, "key": "input.customer"}]\n"rate_limit": [{"limit": 10, "per": "1m"}]'}</pre>
    </Empty>
  );
}

function Table({ shown }: { shown: readonly Limit[] }) {
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label="Limits">
      <table class="list stack limits">
        <thead>
          <tr>
            <th>Limit</th>
            <th>Kind</th>
            <th>Allows</th>
            <th>Taken</th>
            <th class="right">Waiting</th>
            <th>Registered by</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((limit) => (
            <Row key={pathOf(limit)} limit={limit} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ limit }: { limit: Limit }) {
  return (
    <tr>
      <td class="grow">
        <a class="strong" href={address(pathOf(limit))}>
          {limit.scope}
        </a>
        <KeyOf limit={limit} />
      </td>
      <td>
        <span class="badge">{KIND_WORDS[limit.kind]}</span>
      </td>
      <td class="nowrap" data-label="allows">
        {allowedBy(limit)} {limit.override && <span class="badge warn">overridden</span>}
        <Blocked limit={limit} />
      </td>
      <td class="nowrap" data-label="taken">
        <Taken limit={limit} />
      </td>
      <td class="right number" data-label="waiting">
        {limit.waiting_total === 0 ? <span class="none">0</span> : <strong>{count(limit.waiting_total)}</strong>}
      </td>
      <td data-label="registered by">
        <RegisteredBy registered={limit.registered ?? []} />
      </td>
    </tr>
  );
}

/** The key as text that may be long. */
export function KeyOf({ limit }: { limit: Limit }) {
  if (limit.key === null || limit.key === undefined) return null;
  return (
    <span class="limit-key" title={limit.key}>
      <span class="quiet">key</span> <code>{limit.key === "" ? "(empty)" : limit.key}</code>
    </span>
  );
}

/** 0 is meant: it says so, before somebody looks for another reason. */
export function Blocked({ limit }: { limit: Limit }) {
  return limit.limit === 0 && (limit.override || limit.registered?.length) ? <span class="badge bad">nothing begins</span> : null;
}

export function Taken({ limit }: { limit: Limit }) {
  if (limit.kind === "rate") return <span>{plural(wholeTokens(limit.tokens), "token")} left</span>;
  const most = Math.max(limit.limit, limit.holders_total);
  return (
    <span class="taken">
      <svg width={BAR_PX} height="6" aria-hidden="true">
        <rect class="taken-ground" width={BAR_PX} height="6" rx="3" />
        {most > 0 && <rect class="taken-part" width={(BAR_PX * limit.holders_total) / most} height="6" rx="3" />}
      </svg>
      <span class="number">
        {count(limit.holders_total)} of {count(limit.limit)}
      </span>
    </span>
  );
}

function RegisteredBy({ registered }: { registered: readonly LimitRegistered[] }) {
  const [first, ...others] = registered;
  if (first === undefined) return <span class="none">nobody now</span>;
  return (
    <>
      <a href={address(`/workflows/${part(first.workflow)}`)} title={allowed("", first.limit, first.rate_limit)}>
        {first.workflow}
      </a>
      {others.length > 0 && <span class="quiet"> and {plural(others.length, "other")}</span>}
    </>
  );
}
