/** What was just done, at the lower edge: with a way back as long as there is one. */

import { useEffect } from "preact/hooks";
import { plural } from "../parts/sizes";
import { problem, undo, UNDO_MS, waiting } from "./discarding";

const SAID_MS = 6000;

export function Toast({ said, close }: { said: string | null; close: () => void }) {
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(close, SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const batch = waiting.value;
  return (
    <div class="toasts" role="status">
      {problem.value !== null && <div class="toast bad">{problem.value}</div>}
      {batch !== null ? (
        <div class="toast" key={batch.seqs[0]}>
          <span>
            <strong>{plural(batch.seqs.length, "dead letter")}</strong> discarded in {UNDO_MS / 1000} s, or at once if you leave this page.
          </span>
          <button type="button" onClick={undo}>
            Undo
          </button>
          <span class="toast-time" />
        </div>
      ) : (
        said !== null && <div class="toast">{said}</div>
      )}
    </div>
  );
}
