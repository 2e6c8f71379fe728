/** The versions of a workflow, and what differs between two of them. */

import { useMemo, useState } from "preact/hooks";
import { Problem, Waiting } from "../parts/messages";
import { plural } from "../parts/sizes";
import { Ago, Moment } from "../parts/time";
import { usePolled } from "../service/polled";
import { part, query } from "../service/requests";
import type { Version } from "../service/types";
import { diff, folded, type Line } from "./model/diff";
import type { Definition } from "./model/definition";

const EVERY_MS = 5000;

export function Versions({ name }: { name: string }) {
  const versions = usePolled<Version[]>(`/workflows/${part(name)}/versions`, EVERY_MS);
  const [chosen, setChosen] = useState<{ former: string; latter: string } | null>(null);
  if (versions.data === null) return versions.problem === null ? <Waiting what="versions" /> : <Problem problem={versions.problem} />;
  const [latest, before] = versions.data;
  const latter = chosen?.latter ?? latest?.version ?? "";
  const former = chosen?.former ?? before?.version ?? latter;
  const choose = (which: "former" | "latter", version: string) => setChosen({ former, latter, [which]: version });
  return (
    <>
      <table class="list versions">
        <thead>
          <tr>
            <th>Version</th>
            <th>Registered</th>
            <th>
              <span class="visually-hidden">When</span>
            </th>
            {versions.data.length > 1 && <th class="right">Compare</th>}
          </tr>
        </thead>
        <tbody>
          {versions.data.map(({ version, registered_at }, index) => (
            <tr key={version}>
              <td>
                <span class="mono">{version}</span> {index === 0 && <span class="badge">latest</span>}
              </td>
              <td>
                <Moment at={registered_at} />
              </td>
              <td class="quiet">
                <Ago at={registered_at} />
              </td>
              {versions.data!.length > 1 && (
                <td class="right nowrap">
                  <input type="radio" name="former" aria-label={`From version ${version}`} checked={former === version} onChange={() => choose("former", version)} />
                  <input type="radio" name="latter" aria-label={`To version ${version}`} checked={latter === version} onChange={() => choose("latter", version)} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
      {versions.data.length > 1 && <Difference name={name} former={former} latter={latter} />}
    </>
  );
}

function Difference({ name, former, latter }: { name: string; former: string; latter: string }) {
  const one = usePolled<Definition>(`/workflows/${part(name)}${query({ version: former })}`);
  const other = usePolled<Definition>(`/workflows/${part(name)}${query({ version: latter })}`);
  const [whole, setWhole] = useState(false);
  const lines = useMemo(() => (one.data && other.data ? diff(text(one.data), text(other.data)) : null), [one.data, other.data]);
  if (lines === null) return one.problem || other.problem ? <Problem problem={(one.problem ?? other.problem)!} /> : <Waiting what="both versions" />;
  const gone = lines.filter((line) => line.sign === "gone").length;
  const added = lines.filter((line) => line.sign === "new").length;
  return (
    <section class="difference" aria-label={`From version ${former} to version ${latter}`}>
      <header>
        <span>
          <span class="mono">{former}</span> → <span class="mono">{latter}</span>
        </span>
        {gone + added === 0 ? (
          <span class="quiet">the same</span>
        ) : (
          <>
            <span class="diff-new-count">+{added}</span>
            <span class="diff-gone-count">−{gone}</span>
          </>
        )}
        <button type="button" class="tool" aria-pressed={whole} onClick={() => setWhole(!whole)}>
          Whole definition
        </button>
      </header>
      <div class="diff" tabIndex={0} role="region" aria-label="Changed lines">
        {(whole ? lines : folded(lines)).map((line, index) =>
          typeof line === "number" ? (
            <div key={index} class="diff-left">
              {plural(line, "line")} that {line === 1 ? "is" : "are"} the same
            </div>
          ) : (
            <DiffLine key={index} line={line} />
          ),
        )}
      </div>
    </section>
  );
}

const SIGNS = { same: " ", gone: "−", new: "+" } as const;

function DiffLine({ line: { sign, text, before, after } }: { line: Line }) {
  return (
    <div class={`diff-line d-${sign}`}>
      <span class="diff-number">{before}</span>
      <span class="diff-number">{after}</span>
      <span class="diff-sign">{SIGNS[sign]}</span>
      <span class="diff-text">{text}</span>
    </div>
  );
}

const text = (definition: Definition): string => JSON.stringify(definition, null, 2);
