/** What is read off a trigger. */

import type { Trigger } from "../service/types";

const KINDS = ["cron", "webhook", "event", "subject", "http"] as const;
export type Kind = (typeof KINDS)[number];

export const kindOf = (trigger: Trigger): Kind => KINDS.find((kind) => Boolean(trigger[kind])) ?? "cron";

/** What it listens to, in a few words. */
export function sourceOf(trigger: Trigger): string {
  if (trigger.cron) return `${trigger.cron.expression}${trigger.cron.timezone === "UTC" ? "" : ` ${trigger.cron.timezone}`}`;
  if (trigger.webhook) return `/v1/webhooks/${trigger.name}`;
  if (trigger.event) return `${trigger.event.subject}${trigger.event.field ? ` · ${trigger.event.field}${"value" in trigger.event ? ` = ${JSON.stringify(trigger.event.value)}` : ""}` : ""}`;
  if (trigger.http) return `${trigger.http.method ?? "POST"} /v1/http/${trigger.http.path}`;
  return trigger.subject?.subject ?? "";
}
