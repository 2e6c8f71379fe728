/** One step of a definition, with all that is said of it. */

import type { ComponentChildren } from "preact";
import { Json } from "../parts/json";
import { address } from "../shell/router";
import { part } from "../service/requests";
import { kindWord, retryOf, retryText, type Definition, type Handler, type StepDefinition } from "./model/definition";

interface Props {
  step: StepDefinition;
  definition: Definition;
  isMissing: boolean;
  close: () => void;
}

export function StepSide({ step, definition, isMissing, close }: Props) {
  const retry = retryOf(step, definition);
  const child = step.config?.["workflow"];
  const skip = step.skip_if;
  return (
    <aside class="step-side" aria-label={`Step ${step.id}`}>
      <header>
        <h2>{step.id}</h2>
        <button type="button" class="quiet-button" aria-label="Close" onClick={close}>
          ✕
        </button>
      </header>
      {step.description && <p class="quiet">{step.description}</p>}
      <dl class="definition-facts">
        <Fact name="Kind">{kindWord(step)}</Fact>
        <Fact name="Task">
          {step.task && <span class="mono">{step.task}</span>}
          {isMissing && <span class="badge warn">nobody serves it</span>}
        </Fact>
        <Fact name="Workflow">{typeof child === "string" && <a href={address(`/workflows/${part(child)}`)}>{child}</a>}</Fact>
        <Fact name="Waits for">{step.depends_on?.join(", ")}</Fact>
        <Fact name="Condition">{step.when && <code>{step.when}</code>}</Fact>
        <Fact name="Skipped if">{skip && <code>{`${skip.step_id}.${skip.field} ${skip.op} ${JSON.stringify(skip.value)}`}</code>}</Fact>
        <Fact name="Retries">{retry && retryText(retry)}</Fact>
        <Fact name="Timeout">{step.timeout}</Fact>
        <Fact name="Worker group">{step.worker_group}</Fact>
        <HandlerFact name="On failure" handler={step.on_failure} />
        <HandlerFact name="Undone by" handler={step.compensate} />
      </dl>
      <Value title="Input" value={step.with} />
      <Value title="Settings" value={step.config} />
      <Value title="Metadata" value={step.metadata} />
    </aside>
  );
}

function Fact({ name, children }: { name: string; children?: ComponentChildren }) {
  const shown = Array.isArray(children) ? children.some(Boolean) : Boolean(children);
  return shown ? (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  ) : null;
}

function HandlerFact({ name, handler }: { name: string; handler: Handler | null | undefined }) {
  if (!handler) return null;
  const more = [handler.retry && `retries ${retryText(handler.retry)}`, handler.timeout && `timeout ${handler.timeout}`].filter(Boolean);
  return (
    <Fact name={name}>
      <span class="mono">{handler.task}</span>
      {more.length > 0 && <span class="quiet"> {more.join(", ")}</span>}
    </Fact>
  );
}

function Value({ title, value }: { title: string; value: unknown }) {
  if (value === undefined || value === null) return null;
  return (
    <>
      <h3>{title}</h3>
      <div class="json">
        <Json value={value} />
      </div>
    </>
  );
}
