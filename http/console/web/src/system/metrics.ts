/** The figures of GET /metrics over the time that the page is open. */

import { useEffect, useState } from "preact/hooks";
import { getText } from "../service/requests";

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** What was read at one time, in s since 1970. */
export interface Reading {
  readonly at: number;
  readonly samples: readonly Sample[];
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** The samples of Prometheus' text format, without the buckets of histograms. */
export function parse(text: string): Sample[] {
  const found: Sample[] = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("#")) continue;
    const [, name, labels = "", value] = LINE.exec(line) ?? [];
    if (name === undefined || name.endsWith("_bucket")) continue;
    const pairs = [...labels.matchAll(LABEL)].map(([, label, text]) => [label!, text!.replace(/\\(.)/g, (_, one: string) => (one === "n" ? "\n" : one))]);
    found.push({ name, labels: Object.fromEntries(pairs) as Record<string, string>, value: Number(value) });
  }
  return found;
}

export type Which = (labels: Readonly<Record<string, string>>) => boolean;

export const of = (reading: Reading, name: string, which: Which = () => true): Sample[] => reading.samples.filter((one) => one.name === name && which(one.labels));

export const total = (reading: Reading, name: string, which?: Which): number => of(reading, name, which).reduce((sum, one) => sum + one.value, 0);

/** How much a counter has grown a second. A process that was not there before, or began anew, counts from now on. */
export function rate(before: Reading, after: Reading, name: string, which?: Which): number {
  const key = (one: Sample) => JSON.stringify(one.labels);
  const known = new Map(of(before, name, which).map((one) => [key(one), one.value]));
  const processes = new Set(of(before, "penstock_process_start_time_seconds").map((one) => `${one.labels.host} ${one.labels.process}`));
  let grown = 0;
  for (const one of of(after, name, which)) {
    const value = known.get(key(one)) ?? (processes.has(`${one.labels.host} ${one.labels.process}`) ? 0 : one.value);
    grown += Math.max(0, one.value - value);
  }
  return grown / Math.max(0.001, after.at - before.at);
}

const EVERY_MS = 4000;
const KEPT = 900;
/** Rates need two readings, and lines more: the first ones come sooner. */
const FIRST = 3;
const FIRST_MS = 1000;

export interface Read {
  readonly readings: readonly Reading[];
  readonly problem: Error | null;
}

/** Readings from now on, while somebody sees the page. The earlier ones keep only what charts show. */
export function useMetrics(everyMs = EVERY_MS): Read {
  const [read, setRead] = useState<Read>({ readings: [], problem: null });
  useEffect(() => {
    let over = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let read = 0;
    async function once(): Promise<void> {
      clearTimeout(timer);
      if (document.hidden) return;
      try {
        const samples = parse(await getText("/metrics"));
        read += 1;
        if (!over) setRead((before) => ({ readings: [...before.readings, { at: Date.now() / 1000, samples }].slice(-KEPT), problem: null }));
      } catch (problem) {
        if (!over) setRead((before) => ({ ...before, problem: problem as Error }));
      }
      if (!over) timer = setTimeout(() => void once(), read < FIRST ? Math.min(FIRST_MS, everyMs) : everyMs);
    }
    const seen = () => void once();
    document.addEventListener("visibilitychange", seen);
    void once();
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, []);
  return read;
}
