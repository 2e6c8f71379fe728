/** The document of a trigger, to create or to change it. Problems that the service names stand below the text. */

import { useRef, useState } from "preact/hooks";
import { Dialog, type Command } from "../parts/dialog";
import { part, Refused, send } from "../service/requests";
import type { Trigger } from "../service/types";
import { go } from "../shell/router";
import type { Kind } from "./model";

const SAMPLES: Readonly<Record<Kind, object>> = {
  cron: { cron: { expression: "0 9 * * MON-FRI", timezone: "UTC" } },
  webhook: { webhook: {} },
  event: { event: { subject: "event.order.paid" } },
  subject: { subject: { subject: "orders.>" } },
  http: { http: { path: "orders", method: "POST" } },
};

const written = (document: object): string => JSON.stringify(document, null, 2);

const sample = (kind: Kind): string => written({ name: "", workflow: "", ...SAMPLES[kind] });

interface Props {
  /** Null: a new one. */
  trigger: Trigger | null;
  close: () => void;
  changed?: () => void;
}

export function Edit({ trigger, close, changed }: Props) {
  const [text, setText] = useState(() => (trigger === null ? sample("cron") : editable(trigger)));
  const [problem, setProblem] = useState<string | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const name = trigger?.name ?? nameIn(text);
  const command: Command =
    trigger === null
      ? { method: "POST", path: "/triggers", body: text }
      : { method: "PUT", path: `/triggers/${part(trigger.name)}`, body: text };

  async function carryOut(): Promise<void> {
    try {
      await send(command.path, { method: trigger === null ? "POST" : "PUT", body: text });
    } catch (found) {
      if (!(found instanceof Refused)) throw found;
      setProblem(found.message);
      field.current?.focus();
      throw new Error("The service has refused the document.");
    }
    changed?.();
    if (trigger === null) go(`/triggers/${part(name)}`);
  }

  return (
    <Dialog title={trigger === null ? "Create a trigger" : `Change ${trigger.name}`} action={trigger === null ? "Create" : "Save"} command={command} carryOut={carryOut} close={close}>
      {trigger === null && (
        <label>
          Kind
          <select onChange={(event) => setText(sample(event.currentTarget.value as Kind))}>
            {Object.keys(SAMPLES).map((kind) => (
              <option key={kind}>{kind}</option>
            ))}
          </select>
        </label>
      )}
      <label>
        Document
        <textarea
          ref={field}
          rows={16}
          spellcheck={false}
          value={text}
          aria-invalid={problem !== null}
          aria-describedby={problem === null ? undefined : "document-problems"}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setProblem(null);
          }}
        />
      </label>
      {problem !== null && (
        <ul id="document-problems" class="field-problems">
          {problem.split("\n").map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      )}
    </Dialog>
  );
}

/** What PUT reads: without what the service works out. The secret of a webhook is never here: true keeps it. */
function editable(trigger: Trigger): string {
  const { created_at: _, next_at: __, open_batches: ___, ...document } = trigger;
  return written(document);
}

function nameIn(text: string): string {
  try {
    const found = (JSON.parse(text) as { name?: unknown }).name;
    return typeof found === "string" ? found : "";
  } catch {
    return "";
  }
}
