/** What can be done with a limit: override what it allows, and take that back. Each can be undone at once. */

import { useEffect, useState } from "preact/hooks";
import { Dialog, type Command } from "../parts/dialog";
import { send } from "../service/requests";
import type { Limit } from "../service/types";
import { address } from "../shell/router";
import { may } from "../shell/session";
import { allowed, allowedBy, bodyOf, optionsOf, ownOverride, pathOf } from "./model";

const UNDO_MS = 6000;

/** What was done, and how it is undone. */
interface Done {
  readonly text: string;
  readonly undo: () => Promise<void>;
}

export function Changes({ limit, changed }: { limit: Limit; changed: () => void }) {
  const [asked, setAsked] = useState<"override" | "reset" | null>(null);
  const [done, setDone] = useState<Done | null>(null);
  const close = () => setAsked(null);
  const own = ownOverride(limit);
  const path = pathOf(limit);

  /** Lets what counted before the change count again. */
  async function restore(): Promise<void> {
    if (own === null) await send(path, { method: "DELETE" });
    else await send(path, { method: "PUT", body: bodyOf(own) });
    changed();
  }

  function finished(text: string): void {
    setDone({ text, undo: restore });
    changed();
  }

  if (!may("admin")) return null;
  return (
    <div class="actions">
      <button type="button" onClick={() => setAsked("override")}>
        Override…
      </button>
      {own !== null && (
        <button type="button" onClick={() => setAsked("reset")}>
          Take back…
        </button>
      )}
      {limit.override && own === null && (
        <a class="button" href={address(pathOf({ scope: limit.scope, kind: limit.kind }))}>
          Take back for all keys
        </a>
      )}
      {asked === "override" && <Override limit={limit} path={path} finished={finished} close={close} />}
      {asked === "reset" && <TakeBack limit={limit} path={path} finished={finished} close={close} />}
      <Toast done={done} close={() => setDone(null)} />
    </div>
  );
}

interface DialogProps {
  limit: Limit;
  path: string;
  finished: (text: string) => void;
  close: () => void;
}

function ofWhat(limit: Limit): string {
  if ((limit.key ?? null) !== null) return "this key";
  return (limit.keys ?? []).length > 0 ? "all its keys, also those to come" : "it, with all its keys if it has any";
}

function Override({ limit, path, finished, close }: DialogProps) {
  const rate = limit.rate_limit ?? null;
  const [most, setMost] = useState(String(limit.limit));
  const [per, setPer] = useState(rate?.per ?? "");
  const [burst, setBurst] = useState(rate?.burst ? String(rate.burst) : "");
  const isRate = limit.kind === "rate";
  const ofRate = { limit: Number(most), per: per.trim(), ...(burst === "" ? {} : { burst: Number(burst) }) };
  const body = isRate ? { rate_limit: ofRate } : { limit: Number(most) };
  const cli = `limit set ${optionsOf(limit)} ${most || 0}${isRate ? ` --per ${per.trim()}${burst === "" ? "" : ` --burst ${burst}`}` : ""}`;
  const command: Command = { method: "PUT", path, body, cli };

  async function carryOut(): Promise<void> {
    await send(path, { method: "PUT", body });
    finished(`It allows ${allowed(limit.kind, Number(most), isRate ? ofRate : null)} now.`);
  }

  return (
    <Dialog title={`Override what ${limit.scope} allows?`} action="Override" danger={most === "0"} command={command} carryOut={carryOut} close={close}>
      <p>
        It counts at once, also for who waits, for {ofWhat(limit)}, until it is taken back. Who has a slot keeps it. Now it allows {allowedBy(limit)}.
      </p>
      <label>
        {isRate ? "So many" : `So many ${limit.kind} at a time`}
        <input type="number" min={0} max={1_000_000} step={1} required value={most} onInput={(event) => setMost(event.currentTarget.value)} />
      </label>
      {isRate && (
        <>
          <label>
            In a time, such as 1m
            <input type="text" required spellcheck={false} value={per} onInput={(event) => setPer(event.currentTarget.value)} />
          </label>
          <label>
            At once after a pause (nothing: no more than in the time)
            <input type="number" min={1} max={1_000_000} step={1} value={burst} onInput={(event) => setBurst(event.currentTarget.value)} />
          </label>
        </>
      )}
      {most !== "" && Number(most) === 0 && <p class="bad">With 0 nothing begins any more.</p>}
    </Dialog>
  );
}

function TakeBack({ limit, path, finished, close }: DialogProps) {
  const [registered] = limit.registered ?? [];
  const command: Command = { method: "DELETE", path, cli: `limit reset ${optionsOf(limit)}` };
  const isOfKey = (limit.key ?? null) !== null;

  async function carryOut(): Promise<void> {
    await send(path, { method: "DELETE" });
    finished("The override is taken back.");
  }

  return (
    <Dialog title="Take the override back?" action="Take back" command={command} carryOut={carryOut} close={close}>
      <p>
        {isOfKey
          ? "What counts for all keys counts for this one again, at once."
          : registered === undefined
            ? "What runs ask for counts again, at once."
            : `${allowed(limit.kind, registered.limit, registered.rate_limit)} counts again, at once, as ${registered.workflow} has registered it.`}{" "}
        Who has a slot keeps it.
      </p>
    </Dialog>
  );
}

function Toast({ done, close }: { done: Done | null; close: () => void }) {
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    if (done === null) return;
    setProblem(null);
    const timer = setTimeout(close, UNDO_MS);
    return () => clearTimeout(timer);
  }, [done]);

  async function undo(): Promise<void> {
    try {
      await done?.undo();
      close();
    } catch (error) {
      setProblem((error as Error).message);
    }
  }

  return (
    <div class="toasts" role="status">
      {problem !== null && <div class="toast bad">{problem}</div>}
      {done !== null && (
        <div class="toast" key={done.text}>
          <span>{done.text}</span>
          <button type="button" onClick={() => void undo()}>
            Undo
          </button>
          <span class="toast-time" />
        </div>
      )}
    </div>
  );
}
