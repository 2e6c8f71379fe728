/** What stands where there is nothing to show: yet, at all, or because of a problem. */

import type { ComponentChildren } from "preact";
import { Refused } from "../service/requests";
import { address } from "../shell/router";

export function Waiting({ what }: { what: string }) {
  return (
    <p class="waiting" role="status">
      Reading {what} …
    </p>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

const TITLES: Readonly<Record<number, string>> = { 403: "Not allowed (403)", 404: "Not found (404)" };

export function Problem({ problem, back }: { problem: Error; back?: string }) {
  const offline = !(problem instanceof Refused);
  return (
    <div class="problem" role="alert">
      <p class="problem-title">{offline ? "The service does not answer." : (TITLES[problem.status] ?? `The service has answered ${problem.status}.`)}</p>
      <pre>{offline ? "It is asked again until it does." : problem.message}</pre>
      {back !== undefined && <a href={address(back)}>Back to the list</a>}
    </div>
  );
}
