/** An error with its traceback: the last frames, which say most, and the others on demand. */

import { plural } from "../../parts/sizes";

const FRAME = /^ {2}File "/;

export function ErrorText({ error, traceback }: { error: string; traceback: string | null }) {
  return (
    <div class="panel-error">
      <pre class="error-text">{error}</pre>
      {traceback !== null && <Traceback text={traceback} />}
    </div>
  );
}

function Traceback({ text }: { text: string }) {
  const { before, last } = split(text);
  const frames = before.split("\n").filter((line) => FRAME.test(line)).length;
  return (
    <>
      {frames > 0 && (
        <details>
          <summary>{plural(frames, "frame")} before</summary>
          <pre class="traceback" tabIndex={0}>{before}</pre>
        </details>
      )}
      <pre class="traceback" tabIndex={0}>{last}</pre>
    </>
  );
}

/** Up to the last frame, and from it on. */
function split(text: string): { before: string; last: string } {
  const lines = text.split("\n");
  let at = lines.length - 1;
  while (at > 0 && !FRAME.test(lines[at]!)) at -= 1;
  return { before: lines.slice(0, at).join("\n"), last: lines.slice(at).join("\n") };
}
