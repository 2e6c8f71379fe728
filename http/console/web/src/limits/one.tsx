/** The page of one limit: who has its slots, who waits for one, and what it allows. */

import type { ComponentChildren } from "preact";
import { Problem, Waiting } from "../parts/messages";
import { count } from "../parts/sizes";
import { Ago, Moment } from "../parts/time";
import { usePolled } from "../service/polled";
import { part } from "../service/requests";
import type { Limit, LimitKey, LimitRegistered } from "../service/types";
import { address, place } from "../shell/router";
import { Changes } from "./changes";
import { Holders, Waiters } from "./lists";
import { allowed, allowedBy, KIND_WORDS, pathOf, wholeTokens } from "./model";
import { Blocked, KeyOf } from "./page";

const EVERY_MS = 2000;

export function LimitPage({ scope }: { scope: string }) {
  const { params } = place.value;
  const path = pathOf({ scope, kind: params.get("kind"), key: params.get("key") });
  return <One key={path} path={path} />;
}

function One({ path }: { path: string }) {
  const limit = usePolled<Limit>(path, EVERY_MS);
  if (limit.data === null) return limit.problem === null ? <Waiting what="the limit" /> : <Problem problem={limit.problem} back="/limits" />;
  const shown = limit.data;
  const keys = shown.keys ?? [];
  return (
    <div class="one-page">
      <Head limit={shown} lost={limit.problem !== null} changed={limit.refresh} />
      <div class="sections">
        {shown.kind !== "rate" && (
          <Section title="Holders" more={<Shown of={shown.holders.length} total={shown.holders_total} />}>
            <Holders limit={shown} />
          </Section>
        )}
        <Section title="Waiting" more={<Shown of={shown.waiting.length} total={shown.waiting_total} />}>
          <Waiters limit={shown} />
        </Section>
        {keys.length > 0 && (
          <Section title="Keys">
            <Keys limit={shown} keys={keys} />
          </Section>
        )}
        <Section title="Registered by">
          <Registered limit={shown} registered={shown.registered ?? []} />
        </Section>
      </div>
    </div>
  );
}

function Head({ limit, lost, changed }: { limit: Limit; lost: boolean; changed: () => void }) {
  return (
    <header class="one-head">
      <div class="one-title">
        <h1>{limit.scope}</h1>
        <p class="one-facts">
          <span class="badge">{KIND_WORDS[limit.kind]}</span>
          <KeyOf limit={limit} />
          {(limit.key ?? null) !== null && <a href={address(pathOf({ scope: limit.scope, kind: limit.kind }))}>all keys</a>}
          <Blocked limit={limit} />
          {lost && <span class="badge warn">connection lost, trying again</span>}
        </p>
        <Overridden limit={limit} />
      </div>
      <dl class="one-numbers">
        <Figure name="Allows">{allowedBy(limit)}</Figure>
        {limit.kind === "rate" ? <Figure name="Tokens">{count(wholeTokens(limit.tokens))}</Figure> : <Figure name="Taken">{count(total(limit, "holders_total"))}</Figure>}
        <Figure name="Waiting">{count(total(limit, "waiting_total"))}</Figure>
        {limit.next_at && (
          <Figure name="Next token">
            <Ago at={limit.next_at} />
          </Figure>
        )}
      </dl>
      <Changes limit={limit} changed={changed} />
    </header>
  );
}

/** Of the limit, and of the keys that it has. */
const total = (limit: Limit, what: "holders_total" | "waiting_total"): number => (limit.keys ?? []).reduce((sum, one) => sum + one[what], limit[what]);

/** Who has set what counts now. */
function Overridden({ limit }: { limit: Limit }) {
  const { override } = limit;
  if (!override) return null;
  const ofAll = (limit.key ?? null) !== null && (override.key ?? null) === null;
  return (
    <p class="limit-override">
      <span class="badge warn">overridden</span> {allowed(limit.kind, override.limit, override.rate_limit)}
      {ofAll && " for all keys"} <span class="quiet">since</span> <Moment at={override.at} />
      {override.by && (
        <>
          {" "}
          <span class="quiet">by</span> {override.by}
        </>
      )}
    </p>
  );
}

function Figure({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class="number">{children}</dd>
    </div>
  );
}

function Section({ title, more, children }: { title: string; more?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="section" aria-label={title}>
      <header>
        <h2>{title}</h2>
        {more}
      </header>
      {children}
    </section>
  );
}

function Shown({ of, total }: { of: number; total: number }) {
  if (total === 0) return null;
  return <span class="quiet">{of < total ? `the first ${count(of)} of ${count(total)}` : count(total)}</span>;
}

function Keys({ limit, keys }: { limit: Limit; keys: readonly LimitKey[] }) {
  const counted = limit.kind === "rate" ? "" : "taken";
  return (
    <div class="table-frame">
      <table class="list stack">
        <thead>
          <tr>
            <th>Key</th>
            {counted && <th class="right">Taken</th>}
            <th class="right">Waiting</th>
          </tr>
        </thead>
        <tbody>
          {keys.map((one) => (
            <tr key={one.key}>
              <td class="grow">
                <a class="mono limit-long" href={address(pathOf({ scope: limit.scope, kind: limit.kind, key: one.key }))}>
                  {one.key === "" ? "(empty)" : one.key}
                </a>
              </td>
              {counted && (
                <td class="right number" data-label={counted}>
                  {count(one.holders_total)}
                </td>
              )}
              <td class="right number" data-label="waiting">
                {count(one.waiting_total)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Registered({ limit, registered }: { limit: Limit; registered: readonly LimitRegistered[] }) {
  if (registered.length === 0) return <p class="quiet">No definition names it any more.</p>;
  return (
    <div class="table-frame">
      <table class="list stack">
        <thead>
          <tr>
            <th>Workflow</th>
            <th>Allows</th>
            <th class="right">When</th>
          </tr>
        </thead>
        <tbody>
          {registered.map((one, index) => (
            <tr key={one.workflow}>
              <td class="grow">
                <a class="limit-long" href={address(`/workflows/${part(one.workflow)}${one.step_id ? `?step=${part(one.step_id)}` : ""}`)}>
                  {one.workflow}
                  {one.step_id && ` / ${one.step_id}`}
                </a>{" "}
                <span class="quiet mono">@{one.version}</span>
              </td>
              <td class="nowrap">
                {allowed(limit.kind, one.limit, one.rate_limit)} {index === 0 && registered.length > 1 && <span class="badge">the last one counts</span>}
              </td>
              <td class="right quiet">
                <Ago at={one.at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
