/** Where one is in the console: the path and its query, which buttons and links change without loading a page. */

import { signal } from "@preact/signals";

export const ROOT = "/console";

export interface Place {
  /** Below /console, with a slash first. */
  readonly path: string;
  readonly params: URLSearchParams;
}

function here(): Place {
  return { path: location.pathname.slice(ROOT.length) || "/", params: new URLSearchParams(location.search) };
}

export const place = signal<Place>(here());

/** The address of a page: its path below /console, and its query. */
export const address = (path: string): string => ROOT + path;

export function go(path: string, { replace = false }: { replace?: boolean } = {}): void {
  if (replace) history.replaceState(null, "", address(path));
  else history.pushState(null, "", address(path));
  const before = place.peek().path;
  place.value = here();
  if (!replace && place.value.path !== before) scrollTo(0, 0);
}

/** Changes parameters of the query: those without a value are left out. */
export function setParams(changes: Record<string, string | null>, { replace = false }: { replace?: boolean } = {}): void {
  const params = new URLSearchParams(place.peek().params);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") params.delete(name);
    else params.set(name, value);
  }
  const text = params.toString();
  go(place.peek().path + (text === "" ? "" : `?${text}`), { replace });
}

/** Lets links within the console change the place; those with another target, and clicks that open a tab, are the browser's. */
export function routeLinks(): void {
  addEventListener("popstate", () => (place.value = here()));
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest("a");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.pathname !== ROOT && !link.pathname.startsWith(`${ROOT}/`)) return;
    event.preventDefault();
    go(link.pathname.slice(ROOT.length) + link.search);
  });
}
