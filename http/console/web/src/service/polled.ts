/** What the service says, asked again and again while somebody sees the page. */

import { useEffect, useRef, useState } from "preact/hooks";
import { ask as askFor, type Answer } from "./requests";

const AGE_SHARE = 2000; // of the pause between two requests, half: an answer that others got will do

export interface Polled<T> {
  readonly answer: Answer<T> | null;
  readonly data: T | null;
  /** Why the last request failed; null after one that succeeded. */
  readonly problem: Error | null;
  /** Asks now. */
  readonly refresh: () => void;
}

/**
 * The answer to a GET request of `path`, asked for again `everyMs` after each answer; 0: once. The answer before stays
 * until the next one comes; null as `path` asks for nothing.
 */
export function usePolled<T>(path: string | null, everyMs = 0): Polled<T> {
  const [state, setState] = useState<{ path: string | null; answer: Answer<T> | null; problem: Error | null }>({
    path,
    answer: null,
    problem: null,
  });
  const ask = useRef<() => void>(() => undefined);

  useEffect(() => {
    if (path === null) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let abort: AbortController | null = null;
    let over = false;
    let before: Answer<T> | null = null;

    async function once(wanted: string, ageMax: number): Promise<void> {
      clearTimeout(timer);
      abort?.abort();
      const mine = (abort = new AbortController());
      const begun = performance.now();
      try {
        const answer = await askFor<T>(wanted, { ageMax, before }, mine.signal);
        before = answer;
        if (!over && abort === mine) setState((last) => (last.answer === answer && last.problem === null ? last : { path: wanted, answer, problem: null }));
      } catch (problem) {
        if (over || abort !== mine) return;
        setState((before) => ({ ...before, path: wanted, problem: problem as Error }));
      }
      // A service that answers slowly is asked less often.
      const pause = Math.max(everyMs, 10 * (performance.now() - begun));
      if (everyMs > 0 && !over && abort === mine) timer = setTimeout(next, pause);
    }

    function next(): void {
      if (!document.hidden) void once(path!, Math.floor(everyMs / AGE_SHARE));
    }

    ask.current = () => void once(path, 0);
    document.addEventListener("visibilitychange", next);
    void once(path, 0);
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", next);
      abort?.abort();
    };
  }, [path, everyMs]);

  const current = state.path === path || state.answer !== null ? state : { answer: null, problem: null };
  return {
    answer: current.answer,
    data: current.answer?.data ?? null,
    problem: current.problem,
    refresh: () => ask.current(),
  };
}
