/** The keys that work everywhere, and those of the page that is open. None of them is heard while somebody types. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { PAGES } from "./layout";
import { go } from "./router";

export interface Key {
  /** As `KeyboardEvent.key` says it. */
  readonly key: string;
  readonly label: string;
  /** Without it the key is only shown: the page hears it by itself. */
  readonly act?: () => void;
}

/** What is typed while the search is not there yet: it begins with that. */
export const typedAhead = { text: "" };

/** The dialog above the page. */
export const opened = signal<"search" | "keys" | null>(null);

/** Keys of the page that is open, shown by `?`. */
export const pageKeys = signal<readonly Key[]>([]);

/** Lets keys act while the component is there; which ones, its first drawing says, and what they do, its last. */
export function useKeys(keys: readonly Key[]): void {
  const latest = useRef(keys);
  latest.current = keys;
  useLayoutEffect(() => {
    const own = keys.map((one, index) => (one.act === undefined ? one : { ...one, act: () => latest.current[index]?.act?.() }));
    pageKeys.value = [...pageKeys.peek(), ...own];
    return () => (pageKeys.value = pageKeys.peek().filter((one) => !own.includes(one)));
  }, []);
}

/** What works everywhere, for people: the keys and what they do. */
export const EVERYWHERE: readonly (readonly [string, string])[] = [
  ["Ctrl K", "Search, or carry out a command"],
  ["/", "Search on this page, or everywhere"],
  ["?", "Show the keys"],
];

const G_MS_MAX = 1500;

export function listenForKeys(): void {
  let pressedG = -Infinity;
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      typedAhead.text = "";
      opened.value = opened.peek() === "search" ? null : "search";
      return;
    }
    if (opened.peek() === "search" && !document.querySelector("dialog[open]")) {
      if (event.key.length === 1) typedAhead.text += event.key;
      return;
    }
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event) || document.querySelector("dialog[open]")) return;
    const afterG = event.timeStamp - pressedG < G_MS_MAX;
    pressedG = -Infinity;
    const page = afterG ? PAGES.find((one) => one.key === event.key) : undefined;
    if (page !== undefined) go(page.path);
    else if (event.key === "g") pressedG = event.timeStamp;
    else if (event.key === "/") searchHere();
    else if (event.key === "?") opened.value = "keys";
    else {
      const own = pageKeys.peek().find((one) => one.key === event.key);
      if (own?.act === undefined) return;
      own.act();
    }
    event.preventDefault();
  });
}

/** The page's own search, if it has one. */
function searchHere(): void {
  const field = document.querySelector<HTMLInputElement>("main :is(input[type='search'], [data-search])");
  if (field === null) opened.value = "search";
  else {
    field.focus();
    field.select();
  }
}

function isTyping(event: KeyboardEvent): boolean {
  const on = event.target instanceof HTMLElement ? event.target : null;
  return on !== null && (on.isContentEditable || /^(?:INPUT|TEXTAREA|SELECT)$/.test(on.tagName)) && !/^(?:checkbox|radio|range)$/.test((on as HTMLInputElement).type);
}
