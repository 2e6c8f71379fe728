/** Tries a trigger: what a body would start, without starting it; and how one sends it, signed where it must be. */

import { useEffect, useState } from "preact/hooks";
import { Copy } from "../parts/copy";
import { quoted } from "../parts/dialog";
import { Json } from "../parts/json";
import { Moment } from "../parts/time";
import { part, post } from "../service/requests";
import type { Trial, Trigger } from "../service/types";
import { kindOf } from "./model";

export function TryOut({ trigger }: { trigger: Trigger }) {
  const [body, setBody] = useState(() => sampleBody(trigger));
  const [trial, setTrial] = useState<Trial | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const isCron = kindOf(trigger) === "cron";

  async function run(): Promise<void> {
    try {
      setTrial(await post<Trial>(`/triggers/${part(trigger.name)}/test`, isCron ? "" : body));
      setProblem(null);
    } catch (found) {
      setTrial(null);
      setProblem((found as Error).message);
    }
  }
  useEffect(() => {
    if (isCron) void run();
  }, [trigger.next_at, trigger.enabled]);

  return (
    <form
      class="trial"
      onSubmit={(event) => {
        event.preventDefault();
        void run();
      }}
    >
      {!isCron && (
        <label>
          Body that comes
          <textarea rows={5} spellcheck={false} value={body} onInput={(event) => setBody(event.currentTarget.value)} />
        </label>
      )}
      {!isCron && (
        <p>
          <button type="submit">Try it</button> <span class="quiet">Nothing is started.</span>
        </p>
      )}
      {problem !== null && (
        <pre class="error-text" role="alert">
          {problem}
        </pre>
      )}
      {trial !== null && <Outcome trial={trial} />}
      <Sending trigger={trigger} body={body} />
    </form>
  );
}

function Outcome({ trial }: { trial: Trial }) {
  const next = trial.next ?? [];
  return (
    <div class="outcome" role="status">
      <p>
        {trial.would_start ? (
          <span class="badge good">would start {trial.version === undefined ? trial.workflow : `${trial.workflow}@${trial.version}`}</span>
        ) : (
          <span class="badge bad">would start nothing</span>
        )}
      </p>
      {(trial.problems ?? []).length > 0 && (
        <ul class="field-problems">
          {trial.problems!.map((one) => (
            <li key={one}>{one}</li>
          ))}
        </ul>
      )}
      {next.length > 0 && (
        <>
          <h3>Next instants</h3>
          <ol class="instants">
            {next.map((at) => (
              <li key={at}>
                <Moment at={at} />
              </li>
            ))}
          </ol>
        </>
      )}
      {trial.would_start && trial.input !== undefined && (
        <>
          <h3>Input of the run</h3>
          <div class="json">
            <Json value={trial.input} />
          </div>
        </>
      )}
      {trial.labels && Object.keys(trial.labels).length > 0 && (
        <p class="one-facts">
          {Object.entries(trial.labels).map(([key, value]) => (
            <span key={key} class="badge">
              {key}:{value}
            </span>
          ))}
        </p>
      )}
    </div>
  );
}

/** The command that sends the body. Only its reader has the secret of a webhook: the shell signs. */
function Sending({ trigger, body }: { trigger: Trigger; body: string }) {
  const lines = commands(trigger, body);
  if (lines === null) return null;
  return (
    <div class="sending">
      <h3>{trigger.webhook ? "A signed sample" : "Send it"}</h3>
      {trigger.webhook && (
        <p class="quiet">
          {trigger.webhook.secret ? "Put the trigger's secret" : "The trigger has no secret of its own: put that of the service"} into SECRET. It is never shown here.
        </p>
      )}
      <div class="commands">
        <Copy text={lines} />
      </div>
    </div>
  );
}

function commands(trigger: Trigger, body: string): string | null {
  const origin = location.origin;
  if (trigger.webhook) {
    return [
      `BODY=${quoted(body)}`,
      `SIGNATURE=$(printf %s "$BODY" | openssl dgst -sha256 -hmac "$SECRET" -r | cut -d' ' -f1)`,
      `curl -s ${quoted(`${origin}/v1/webhooks/${trigger.name}`)} -H "X-Signature-256: sha256=$SIGNATURE" -d "$BODY"`,
    ].join("\n");
  }
  if (trigger.event && !/[*>]/.test(trigger.event.subject)) {
    return `curl -s ${quoted(`${origin}/events/${trigger.event.subject.replace(/^event\./, "")}`)} -d ${quoted(body)}`;
  }
  if (trigger.http) {
    const method = trigger.http.method ?? "POST";
    return `curl -s -X ${method} ${quoted(`${origin}/v1/http/${trigger.http.path}`)}${method === "GET" ? "" : ` -d ${quoted(body)}`}`;
  }
  return null;
}

/** A body that the trigger's filter lets through. */
function sampleBody(trigger: Trigger): string {
  const field = trigger.event?.field;
  if (!field) return "{}";
  const value = trigger.event && "value" in trigger.event ? trigger.event.value : "…";
  const body = field.split(".").reduceRight<unknown>((inner, key) => ({ [key]: inner }), value);
  return JSON.stringify(body, null, 2);
}
