/** What the worker of a step has kept for its next attempt: the latest, and when. It is there while the run goes on. */

import { useEffect, useState } from "preact/hooks";
import { Ago } from "../../parts/time";
import { get, part, query } from "../../service/requests";
import type { Checkpoint } from "../../service/types";
import { Value } from "./values";

const EVERY_MS = 3000;
/** Most steps keep nothing. */
const WITHOUT_MS = 10_000;
const SHOWN_BYTES_MAX = 16 * 1024;

export function KeptCheckpoint({ runId, stepId }: { runId: string; stepId: string }) {
  const path = `/runs/${part(runId)}/steps/${part(stepId)}/checkpoint`;
  const kept = useKept(path);
  if (kept === null) return null;
  const isShown = kept.checkpoint !== undefined;
  return (
    <>
      <Value title="Checkpoint" value={kept.checkpoint} size={isShown ? undefined : kept.checkpoint_bytes} path={path} pick={(answer) => (answer as Checkpoint).checkpoint ?? "no JSON"} />
      <p class="quiet value-note">
        kept <Ago at={kept.at} />, for the next attempt
      </p>
    </>
  );
}

/** The checkpoint, asked for again while the page is seen; null without one, which is no error. */
function useKept(path: string): Checkpoint | null {
  const [kept, setKept] = useState<Checkpoint | null>(null);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const abort = new AbortController();
    async function once(): Promise<void> {
      let pause = EVERY_MS;
      if (!document.hidden) {
        const found = await get<Checkpoint>(`${path}${query({ payload_max: SHOWN_BYTES_MAX })}`, abort.signal).catch(() => null);
        if (abort.signal.aborted) return;
        setKept(found);
        if (found === null) pause = WITHOUT_MS;
      }
      timer = setTimeout(() => void once(), pause);
    }
    void once();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path]);
  return kept;
}
