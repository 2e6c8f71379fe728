/** The search from everywhere: a dialog with a text, and what it finds. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { usePolled } from "../service/polled";
import { query } from "../service/requests";
import { SUMMARIES, type Limit, type Run, type Trigger, type WorkflowSummary } from "../service/types";
import { opened, typedAhead } from "../shell/keys";
import { found, type Found } from "./found";
import { recent } from "./recent";

const PAUSE_MS = 120; // in typing, before the service is asked
const RUNS_READ = 20;
const LIMITS_READ = 200;
const TEXT_MAX = 256; // of q

export function Search() {
  const box = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState(typedAhead.text);
  const [at, setAt] = useState(0);
  const asked = useDelayed(text.trim().slice(0, TEXT_MAX));
  const workflows = usePolled<WorkflowSummary[]>(SUMMARIES);
  const triggers = usePolled<Trigger[]>("/triggers");
  const limits = usePolled<Limit[]>(`/limits?limit=${LIMITS_READ}`);
  const runs = usePolled<Run[]>(asked === "" ? null : `/runs${query({ q: asked, limit: RUNS_READ, payload_max: 0 })}`);
  const visits = useMemo(recent, []);
  const actions = useMemo(() => [...document.querySelectorAll<HTMLElement>("main .actions :is(button, a)")], []);
  useEffect(() => box.current?.showModal(), []);
  useEffect(() => document.getElementById("search-chosen")?.scrollIntoView({ block: "nearest" }), [at, text]);

  const all = found(text, { visits, actions, workflows: workflows.data ?? [], triggers: triggers.data ?? [], limits: limits.data ?? [], runs: asked === "" ? [] : (runs.data ?? []) });
  const chosen = Math.min(at, all.length - 1);

  function take(one: Found | undefined): void {
    if (one === undefined) return;
    opened.value = null;
    box.current?.close();
    one.act();
  }

  function onKeyDown(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    const step = steps[event.key];
    if (step !== undefined) setAt(Math.abs(step) === 1 ? (chosen + step + all.length) % Math.max(1, all.length) : Math.max(0, Math.min(all.length - 1, chosen + step)));
    else if (event.key === "Enter") take(all[chosen]);
    else return;
    event.preventDefault();
  }

  return (
    <dialog ref={box} class="search" aria-label="Search" onClose={() => (opened.value === "search" ? (opened.value = null) : undefined)} onClick={(event) => event.target === box.current && box.current?.close()}>
      <input
        type="text"
        role="combobox"
        aria-label="Search runs, workflows, triggers, limits, labels and commands"
        aria-expanded="true"
        aria-controls="search-found"
        aria-activedescendant={all.length > 0 ? "search-chosen" : undefined}
        autocomplete="off"
        spellcheck={false}
        placeholder="Run id, workflow, trigger, limit, label or command"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <ul id="search-found" role="listbox" aria-label="Found">
        {all.map((one, index) => (
          <li
            key={one.id}
            id={index === chosen ? "search-chosen" : undefined}
            role="option"
            aria-selected={index === chosen}
            onMouseMove={() => index !== chosen && setAt(index)}
            onClick={() => take(one)}
          >
            <span class="found-kind">{one.kind}</span>
            <span class={`found-label${one.kind === "Run" ? " mono" : ""}`}>{one.label}</span>
            {one.hint !== undefined && <span class="found-hint">{one.hint}</span>}
          </li>
        ))}
      </ul>
      {all.length === 0 && <p class="found-none">{asked === text.trim() ? "Nothing is found." : "Searching …"}</p>}
    </dialog>
  );
}

/** The value as it was when it last rested. */
function useDelayed(value: string): string {
  const [delayed, setDelayed] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDelayed(value), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return delayed;
}
