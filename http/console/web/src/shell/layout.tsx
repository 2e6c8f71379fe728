/** What every page stands in: the navigation at the side, and the place for the page. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { inUtc } from "../parts/times";
import { opened } from "./keys";
import { address, place } from "./router";
import { session, signOut } from "./session";
import { theme, THEMES, type Theme } from "./theme";

interface Entry {
  readonly path: string;
  readonly label: string;
  /** The keys that lead there: g and this one. */
  readonly key: string;
}

export const PAGES: readonly Entry[] = [
  { path: "/runs", label: "Runs", key: "r" },
  { path: "/workflows", label: "Workflows", key: "w" },
  { path: "/triggers", label: "Triggers", key: "t" },
  { path: "/approvals", label: "Approvals", key: "a" },
  { path: "/dead-letters", label: "Dead letters", key: "d" },
  { path: "/limits", label: "Limits", key: "l" },
  { path: "/workers", label: "Workers", key: "k" },
  { path: "/system", label: "System", key: "s" },
];

/** Where the links are wider than the screen, that of the page is moved into sight. */
function useHereInSight(): void {
  const { path } = place.value;
  useEffect(() => {
    const link = document.querySelector<HTMLElement>(".side-pages [aria-current]");
    const row = link?.parentElement;
    if (row && row.scrollWidth > row.clientWidth) row.scrollTo({ left: link.offsetLeft - (row.clientWidth - link.offsetWidth) / 2 });
  }, [path]);
}

export function Layout({ children }: { children: ComponentChildren }) {
  useHereInSight();
  return (
    <div class="layout">
      <a class="skip" href="#page">
        To the page
      </a>
      <nav class="side" aria-label="Pages">
        <a class="brand" href={address("/")}>
          <Logo /> penstock
        </a>
        <button type="button" class="open-search" onClick={() => (opened.value = "search")}>
          Search <kbd>Ctrl K</kbd>
        </button>
        <div class="side-pages">
          {PAGES.map((page) => (
            <a key={page.path} href={address(page.path)} aria-current={isHere(page.path) ? "page" : undefined}>
              {page.label}
            </a>
          ))}
        </div>
        <div class="side-foot">
          <Themes />
          <button type="button" class="quiet-button" aria-pressed={inUtc.value} onClick={() => (inUtc.value = !inUtc.value)}>
            {inUtc.value ? "UTC" : "Local time"}
          </button>
          {session.value?.name && (
            <button type="button" class="quiet-button" onClick={() => void signOut()}>
              Sign out {session.value.name}
            </button>
          )}
        </div>
      </nav>
      <main id="page" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

const THEME_SIGNS: Readonly<Record<Theme, string>> = {
  system: "M2.5 3.5h11v7h-11zM6 13.5h4M8 10.5v3",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7",
  dark: "M13 9.6A5.6 5.6 0 0 1 6.4 3a5.6 5.6 0 1 0 6.6 6.6",
};

function Themes() {
  return (
    <div class="themes" role="group" aria-label="Theme">
      {THEMES.map((one) => (
        <button key={one} type="button" title={`Theme: ${one}`} aria-label={`Theme: ${one}`} aria-pressed={theme.value === one} onClick={() => (theme.value = one)}>
          <svg viewBox="0 0 16 16" width="14" height="14" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
            <path d={THEME_SIGNS[one]} />
          </svg>
        </button>
      ))}
    </div>
  );
}

function isHere(path: string): boolean {
  const here = place.value.path;
  return here === path || here.startsWith(`${path}/`) || (path === "/runs" && here === "/");
}

function Logo() {
  return (
    <svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true">
      <path d="M3 3v9a4 4 0 0 0 4 4h10" fill="none" stroke="currentColor" stroke-width="3" stroke-linecap="round" />
      <circle cx="14" cy="6" r="3" fill="currentColor" />
    </svg>
  );
}
