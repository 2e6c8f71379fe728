/** Filters with a name: some that everybody has, and one's own, which the browser keeps. */

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { NO_FILTER, rfc3339, serviceNow, writeFilter, type Filter } from "./filter";

interface View {
  readonly name: string;
  readonly query: string;
}

const KEPT = "runs.views";
const NAME_CHARS_MAX = 40;
const VIEWS_MAX = 30;

/** Today begins at midnight where the browser is. */
const today = (): string => rfc3339(new Date(serviceNow()).setHours(0, 0, 0, 0));

const BUILT_IN: readonly { name: string; filter: () => Filter }[] = [
  { name: "Failed today", filter: () => ({ ...NO_FILTER, status: "failed", after: today() }) },
  { name: "Running", filter: () => ({ ...NO_FILTER, status: "running" }) },
  { name: "Held up", filter: () => ({ ...NO_FILTER, heldUp: true }) },
];

const own = signal<readonly View[]>(read());

function read(): readonly View[] {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? "[]") as unknown;
    if (!Array.isArray(found)) return [];
    return found.filter((one): one is View => typeof one?.name === "string" && typeof one?.query === "string");
  } catch {
    return [];
  }
}

function keep(views: readonly View[]): void {
  own.value = views.slice(-VIEWS_MAX);
  localStorage.setItem(KEPT, JSON.stringify(own.value));
}

export function SavedViews({ filter, choose }: { filter: Filter; choose: (query: string) => void }) {
  const [naming, setNaming] = useState(false);
  const here = writeFilter(filter);
  const views = BUILT_IN.map((one) => ({ name: one.name, query: writeFilter(one.filter()) }));
  const isKept = here === "" || [...views, ...own.value].some((one) => one.query === here);

  function save(event: Event): void {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget as HTMLFormElement).get("name") ?? "").trim();
    if (name !== "") keep([...own.value.filter((one) => one.name !== name), { name, query: here }]);
    setNaming(false);
  }

  return (
    <div class="views" role="group" aria-label="Saved views">
      {views.map((one) => (
        <button key={one.name} type="button" class="view" aria-pressed={one.query === here} onClick={() => choose(one.query === here ? "" : one.query)}>
          {one.name}
        </button>
      ))}
      {own.value.map((one) => (
        <span key={one.name} class="view-own">
          <button type="button" class="view" aria-pressed={one.query === here} onClick={() => choose(one.query === here ? "" : one.query)}>
            {one.name}
          </button>
          {one.query === here && (
            <button type="button" class="view-away" aria-label={`Forget the view ${one.name}`} onClick={() => keep(own.value.filter((other) => other !== one))}>
              ×
            </button>
          )}
        </span>
      ))}
      {!isKept && !naming && (
        <button type="button" class="link" onClick={() => setNaming(true)}>
          Save this view
        </button>
      )}
      {naming && (
        <form class="view-form" onSubmit={save}>
          <input name="name" aria-label="Name of the view" placeholder="Name" maxLength={NAME_CHARS_MAX} autoFocus onKeyDown={(event) => event.key === "Escape" && setNaming(false)} />
          <button type="submit">Save</button>
        </form>
      )}
    </div>
  );
}
