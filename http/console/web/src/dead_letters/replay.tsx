/** The question before runs are resumed at the steps whose tasks became dead letters. */

import { Copy } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { plural } from "../parts/sizes";
import type { DeadLetter } from "../service/types";
import { commandsFor, replayAll, toReplay } from "./model";

interface Props {
  letters: readonly DeadLetter[];
  /** Called with what was done. */
  done: (text: string) => void;
  close: () => void;
}

export function ReplayDialog({ letters, done, close }: Props) {
  const wanted = toReplay(letters);
  const others = letters.filter((letter) => letter.kind !== "task").length;
  return (
    <Dialog
      title={letters.length === 1 ? "Replay this dead letter?" : `Replay ${plural(letters.length - others, "dead letter")}?`}
      action="Replay"
      carryOut={async () => {
        const { replayed, refused } = await replayAll(wanted);
        done(`${plural(replayed, "run")} resumed.${refused.length > 0 ? ` ${refused.length} refused: ${refused[0]!}` : ""}`);
      }}
      close={close}
    >
      <p>
        {plural(wanted.length, "run")} {wanted.length === 1 ? "goes" : "go"} on at the step that has failed, with a fresh count of retries. The dead letters of{" "}
        {wanted.length === 1 ? "that run" : "those runs"} are removed.
        {others > 0 && ` ${plural(others, "letter")} of other kinds cannot be replayed and ${others === 1 ? "stays" : "stay"}.`}
      </p>
      <details class="commands">
        <summary>The same by command</summary>
        {commandsFor(
          "replay",
          wanted.map((letter) => letter.seq),
        ).map((line) => (
          <Copy key={line} text={line} />
        ))}
      </details>
    </Dialog>
  );
}
