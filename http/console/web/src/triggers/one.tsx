/** The page of one trigger: what it listens to, its next instants, a test, its runs, and what can be done with it. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Dialog, quoted, type Command } from "../parts/dialog";
import { Json } from "../parts/json";
import { Problem, Waiting } from "../parts/messages";
import { count } from "../parts/sizes";
import { Strip } from "../parts/strip";
import { Ago, Moment } from "../parts/time";
import { usePolled } from "../service/polled";
import { part, query, send } from "../service/requests";
import type { Run, Trigger } from "../service/types";
import { address, go } from "../shell/router";
import { may } from "../shell/session";
import { LastRuns } from "../workflows/lists";
import { inStatus, useNumbers } from "../workflows/numbers";
import { Edit } from "./edit";
import { kindOf, sourceOf } from "./model";
import { TryOut } from "./trial";

const EVERY_MS = 3000;
const RUNS_SHOWN = 15;

export function TriggerPage({ name }: { name: string }) {
  const trigger = usePolled<Trigger>(`/triggers/${part(name)}`, EVERY_MS);
  const runs = usePolled<Run[]>(`/runs${query({ trigger: name, limit: RUNS_SHOWN, payload_max: 0 })}`, EVERY_MS);
  const numbers = useNumbers("trigger", { trigger: name });
  if (trigger.data === null) return trigger.problem === null ? <Waiting what="the trigger" /> : <Problem problem={trigger.problem} back="/triggers" />;
  const shown = trigger.data;
  const day = numbers.day.get(name);
  const failed = inStatus(day, "failed");
  return (
    <div class="one-page">
      <header class="one-head">
        <div class="one-title">
          <h1>{name}</h1>
          <p class="one-facts">
            <span class="badge">{kindOf(shown)}</span>
            {!shown.enabled && <span class="badge warn">disabled</span>}
            <code>{sourceOf(shown)}</code>
            <span class="quiet">starts</span>
            <a href={address(`/workflows/${part(shown.workflow)}`)}>{shown.workflow}</a>
          </p>
        </div>
        <dl class="one-numbers">
          <Figure name="24 hours">
            <Strip buckets={day?.buckets ?? []} begin={numbers.begin} label={name} />
          </Figure>
          <Figure name="Runs">{count(day?.total ?? 0)}</Figure>
          <Figure name="Failed">
            <span class={failed > 0 ? "bad" : ""}>{count(failed)}</span>
          </Figure>
          <Figure name="Last firing">
            <Ago at={runs.data?.[0]?.created_at} />
          </Figure>
          {shown.cron && (
            <Figure name="Next firing">
              <Ago at={shown.next_at} />
            </Figure>
          )}
          {shown.open_batches && (
            <>
              <Figure name="Events waiting">
                {count(shown.open_batches.events)} <span class="quiet">in {count(shown.open_batches.batches)} {shown.open_batches.batches === 1 ? "batch" : "batches"}</span>
              </Figure>
              <Figure name="Next run">
                <Ago at={shown.open_batches.due_at} />
              </Figure>
            </>
          )}
        </dl>
        <Actions trigger={shown} changed={trigger.refresh} fired={runs.refresh} />
      </header>
      <div class="sections">
        <section class="section" aria-label="Runs">
          <header>
            <h2>Runs</h2>
            <a href={address(`/runs${query({ trigger: name })}`)}>All runs</a>
          </header>
          {runs.data === null ? <Waiting what="runs" /> : <LastRuns runs={runs.data} />}
        </section>
        <section class="section" aria-label="Test">
          <header>
            <h2>{shown.cron ? "When it fires" : "Test"}</h2>
          </header>
          {may("operate") ? <TryOut trigger={shown} /> : <p class="quiet">A test needs the scope operate.</p>}
        </section>
        <section class="section" aria-label="Document">
          <header>
            <h2>Document</h2>
            <span class="quiet">
              created <Moment at={shown.created_at} />
            </span>
          </header>
          <div class="json">
            <Json value={shown} />
          </div>
        </section>
      </div>
    </div>
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

type Asked = "fire" | "enable" | "disable" | "edit" | "delete";

function Actions({ trigger, changed, fired }: { trigger: Trigger; changed: () => void; fired: () => void }) {
  const [asked, setAsked] = useState<Asked | null>(null);
  const close = () => setAsked(null);
  return (
    <div class="actions">
      {may("operate") && (
        <button type="button" class="primary" onClick={() => setAsked("fire")}>
          Fire now…
        </button>
      )}
      {may("admin") && (
        <>
          <button type="button" onClick={() => setAsked(trigger.enabled ? "disable" : "enable")}>
            {trigger.enabled ? "Disable…" : "Enable…"}
          </button>
          <button type="button" onClick={() => setAsked("edit")}>
            Edit…
          </button>
          <button type="button" class="danger-quiet" onClick={() => setAsked("delete")}>
            Delete…
          </button>
        </>
      )}
      {asked === "fire" && <Fire trigger={trigger} fired={fired} close={close} />}
      {(asked === "enable" || asked === "disable") && <Switch trigger={trigger} enabled={asked === "enable"} changed={changed} close={close} />}
      {asked === "edit" && <Edit trigger={trigger} changed={changed} close={close} />}
      {asked === "delete" && <Delete name={trigger.name} close={close} />}
    </div>
  );
}

function Fire({ trigger, fired, close }: { trigger: Trigger; fired: () => void; close: () => void }) {
  const [body, setBody] = useState("");
  const command: Command = {
    method: "POST",
    path: `/triggers/${part(trigger.name)}/fire`,
    ...(body !== "" && { body }),
    cli: `trigger fire ${trigger.name}${body && ` --input ${quoted(body)}`}`,
  };
  async function carryOut(): Promise<void> {
    await send(command.path, { method: "POST", body });
    fired();
  }
  return (
    <Dialog title={`Fire ${trigger.name} now?`} action="Fire" command={command} carryOut={carryOut} close={close}>
      <p>A run of {trigger.workflow} starts at once, also while the trigger is disabled.</p>
      <label>
        Body, in place of the trigger's own input
        <textarea rows={4} spellcheck={false} value={body} onInput={(event) => setBody(event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}

function Switch({ trigger, enabled, changed, close }: { trigger: Trigger; enabled: boolean; changed: () => void; close: () => void }) {
  const word = enabled ? "enable" : "disable";
  const command: Command = {
    method: "PUT",
    path: `/triggers/${part(trigger.name)}`,
    body: { ...trigger, enabled },
    cli: `trigger ${word} ${trigger.name}`,
  };
  async function carryOut(): Promise<void> {
    await send(command.path, { method: "PUT", body: command.body });
    changed();
  }
  return (
    <Dialog title={enabled ? `Enable ${trigger.name}?` : `Disable ${trigger.name}?`} action={enabled ? "Enable" : "Disable"} command={command} carryOut={carryOut} close={close}>
      <p>{enabled ? "It listens from now on; what came meanwhile starts nothing." : "It starts nothing until it is enabled. Runs that it has started go on."}</p>
    </Dialog>
  );
}

function Delete({ name, close }: { name: string; close: () => void }) {
  const command: Command = { method: "DELETE", path: `/triggers/${part(name)}`, cli: `trigger delete ${name}` };
  async function carryOut(): Promise<void> {
    await send(command.path, { method: "DELETE" });
    go("/triggers");
  }
  return (
    <Dialog title={`Delete the trigger ${name}?`} action="Delete" danger command={command} carryOut={carryOut} close={close}>
      <p>What has come and has not started a run yet never will.</p>
    </Dialog>
  );
}
