/** Times and durations as people read them. */

import { signal } from "@preact/signals";
import { clockOffsetMs } from "../service/requests";

/** The service's time now, in ms since 1970; moves four times a second while the page is seen. */
export const now = signal(Date.now());

/** Whether times are shown in UTC; else in the browser's zone. */
export const inUtc = signal(localStorage.getItem("utc") === "true");

const TICK_MS = 250;

export function keepTime(): void {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now() + clockOffsetMs;
  }, TICK_MS);
  inUtc.subscribe((value) => localStorage.setItem("utc", String(value)));
}

/** Milliseconds since 1970 of an RFC 3339 time, with its microseconds as fractions. */
export function instant(text: string): number {
  const ms = Date.parse(text);
  const fraction = /\.(\d{3})(\d+)/.exec(text)?.[2];
  return fraction === undefined ? ms : ms + Number(`0.${fraction}`);
}

/** "450 µs", "3.2 ms", "1.52 s", "2m 05s", "3h 12m", "4d 6h": two units at most. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms === 0) return "0 ms";
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return coarse(ms);
}

/** A duration that ticks, in whole seconds. */
export function ticking(ms: number): string {
  return ms < 60_000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : coarse(ms);
}

function coarse(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  if (minutes < 60) return `${minutes}m ${two(seconds % 60)}s`;
  if (hours < 24) return `${hours}h ${two(minutes % 60)}m`;
  return `${Math.floor(hours / 24)}d ${hours % 24}h`;
}

const two = (value: number): string => String(value).padStart(2, "0");

const FORMATS = new Map<string, Intl.DateTimeFormat>();

function format(utc: boolean, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${utc}${JSON.stringify(options)}`;
  let found = FORMATS.get(key);
  if (found === undefined) {
    found = new Intl.DateTimeFormat("en-GB", { hourCycle: "h23", ...options, ...(utc ? { timeZone: "UTC" } : {}) });
    FORMATS.set(key, found);
  }
  return found;
}

const CLOCK: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const DAY: Intl.DateTimeFormatOptions = { day: "2-digit", month: "short" };

/** "14:03:12" today, "22 Nov, 14:03:12" on other days, with the year in other years. */
export function moment(ms: number, utc: boolean, withMs = false): string {
  const options: Intl.DateTimeFormatOptions = { ...CLOCK };
  if (withMs) options.fractionalSecondDigits = 3;
  const day = format(utc, { ...DAY, year: "numeric" });
  const today = new Date(now.peek());
  if (day.format(ms) === day.format(today)) return format(utc, options).format(ms);
  const sameYear = new Date(ms).getUTCFullYear() === today.getUTCFullYear();
  return format(utc, { ...DAY, ...(sameYear ? {} : { year: "numeric" }), ...options }).format(ms);
}

/** Both zones, for whoever wants to be sure. */
export function bothZones(ms: number): string {
  const options: Intl.DateTimeFormatOptions = { ...DAY, year: "numeric", ...CLOCK, fractionalSecondDigits: 3 };
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return `${format(false, options).format(ms)} (${zone})\n${format(true, options).format(ms)} UTC`;
}

/** "12 s ago", "in 3h 04m". */
export function ago(ms: number, from: number): string {
  const past = from - ms;
  return past >= 0 ? `${ticking(past)} ago` : `in ${ticking(-past)}`;
}
