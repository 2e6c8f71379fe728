/** A question before something is changed: what will happen, and the commands that do the same. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Copy } from "./copy";

export interface Command {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly body?: unknown;
  /** The same on the command line, without the name of the program. */
  readonly cli?: string;
}

interface Props {
  title: string;
  children?: ComponentChildren;
  /** What the button says. */
  action: string;
  danger?: boolean;
  command?: Command;
  /** Carries it out; what it throws is shown. */
  carryOut: () => Promise<void>;
  close: () => void;
}

export function Dialog({ title, children, action, danger = false, command, carryOut, close }: Props) {
  const box = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => box.current?.showModal(), []);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    setBusy(true);
    try {
      await carryOut();
      close();
    } catch (error) {
      setProblem((error as Error).message);
      setBusy(false);
    }
  }

  return (
    <dialog ref={box} onClose={close} aria-labelledby="dialog-title">
      <form onSubmit={submit}>
        <h2 id="dialog-title">{title}</h2>
        {children}
        {problem !== null && (
          <pre class="error-text" role="alert">
            {problem}
          </pre>
        )}
        {command !== undefined && <SameByCommand command={command} />}
        <div class="dialog-buttons">
          <button type="button" onClick={() => box.current?.close()}>
            Back
          </button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={busy}>
            {busy ? "…" : action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

export function SameByCommand({ command }: { command: Command }) {
  const lines = [...(command.cli === undefined ? [] : [`penstock ${command.cli}`]), curl(command)];
  return (
    <details class="commands">
      <summary>The same by command</summary>
      {lines.map((line) => (
        <Copy key={line} text={line} />
      ))}
    </details>
  );
}

function curl({ method, path, body }: Command): string {
  const url = `'${location.origin}${path}'`;
  if (method === "GET") return `curl -s ${url}`;
  const data = body === undefined ? "" : ` -d ${quoted(typeof body === "string" ? body : JSON.stringify(body))}`;
  return `curl -s -X ${method} ${url}${data}`;
}

/** Text as one word of a POSIX shell. */
export const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
