/** Keys of the table: `/` searches, `j` and `k` move, Enter opens, `x` selects, Escape clears the selection. */

import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { part } from "../service/requests";
import { useKeys } from "../shell/keys";
import { go } from "../shell/router";
import { selected } from "./filter";
import type { RunList } from "./list";
import { toggle } from "./rows";

const EDGE_ROWS = 2;
const SHOWN = [
  { key: "j", label: "Next run" },
  { key: "k", label: "Run before" },
  { key: "Enter", label: "Open the run" },
  { key: "x", label: "Select the run" },
  { key: "Escape", label: "Clear the selection" },
] as const;

/** The id of the row where one is. It stays with its run when rows come or go. */
export function useTableKeys(list: RunList, rowHeight: number, maySelect: boolean): string | null {
  const cursor = useMemo(() => signal<string | null>(null), [list]);
  useKeys(SHOWN);
  useEffect(() => {
    function press(event: KeyboardEvent): void {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]") !== null) return;
      if (/^(?:INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && (target as HTMLInputElement).type !== "checkbox") return;
      const rows = list.rows.peek();
      const at = rows.findIndex((row) => row.run.run_id === cursor.peek());
      const row = rows[at];
      if (event.key === "/") document.querySelector<HTMLInputElement>("[data-search]")?.focus();
      else if (event.key === "j" || event.key === "k") move(at < 0 ? 0 : at + (event.key === "j" ? 1 : -1));
      else if (event.key === "Enter" && row !== undefined && (target === document.body || target.id === "page")) go(`/runs/${part(row.run.run_id)}`);
      else if (event.key === "x" && row !== undefined && maySelect) toggle(row.run.run_id);
      else if (event.key === "Escape" && selected.peek().size > 0) selected.value = new Set();
      else return;
      event.preventDefault();
    }
    function move(to: number): void {
      const rows = list.rows.peek();
      const place = Math.max(0, Math.min(rows.length - 1, to));
      const row = rows[place];
      if (row === undefined) return;
      if (document.activeElement instanceof HTMLElement && document.activeElement.id !== "page") document.activeElement.blur();
      cursor.value = row.run.run_id;
      seen(place, rowHeight);
    }
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [list, rowHeight, maySelect]);
  return cursor.value;
}

/** Scrolls so far that a row, which may not be drawn, is seen with its neighbours. */
function seen(place: number, rowHeight: number): void {
  const table = document.querySelector(".runs [style*='relative']");
  if (table === null) return;
  const top = table.getBoundingClientRect().top + place * rowHeight;
  const edge = EDGE_ROWS * rowHeight;
  if (top < edge + rowHeight) scrollBy(0, top - edge - rowHeight);
  else if (top + rowHeight + edge > innerHeight) scrollBy(0, top + rowHeight + edge - innerHeight);
}
