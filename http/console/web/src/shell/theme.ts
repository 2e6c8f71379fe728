/** Light or dark: as the system has it, or as was chosen, which the browser remembers. */

import { signal } from "@preact/signals";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "theme";
const kept = localStorage.getItem(KEY);

export const theme = signal<Theme>(THEMES.find((one) => one === kept) ?? "system");

export function keepTheme(): void {
  theme.subscribe((value) => {
    const root = document.documentElement;
    if (value === "system") delete root.dataset["theme"];
    else root.dataset["theme"] = value;
    localStorage.setItem(KEY, value);
  });
}
