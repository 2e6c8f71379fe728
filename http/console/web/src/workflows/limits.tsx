/** The limits that a definition names, of runs and of steps, each with its page. */

import { allowed, KIND_WORDS, pathOf, type Kind } from "../limits/model";
import { address } from "../shell/router";
import type { ConcurrencyDefinition, Definition, RateDefinition } from "./model/definition";

interface Named {
  readonly kind: Kind;
  readonly scope: string;
  readonly of: ConcurrencyDefinition | RateDefinition;
  readonly stepId: string | null;
}

/** Without a scope of its own, a limit has the name of the workflow, and that of the step behind a dot. */
export function limitsOf(definition: Definition): Named[] {
  const ofRuns = [{ found: definition as Pick<Definition, "concurrency" | "rate_limit">, stepId: null as string | null, kind: "runs" as Kind }];
  const ofSteps = definition.steps.map((step) => ({ found: step, stepId: step.id as string | null, kind: "executions" as Kind }));
  return [...ofRuns, ...ofSteps].flatMap(({ found, stepId, kind }) => {
    const scope = stepId === null ? definition.name : `${definition.name}.${stepId}`;
    return [
      ...(found.concurrency ?? []).map((of) => ({ kind, scope: of.scope ?? scope, of, stepId })),
      ...(found.rate_limit ?? []).map((of) => ({ kind: "rate" as Kind, scope: of.scope ?? scope, of, stepId })),
    ];
  });
}

export function LimitsOf({ limits }: { limits: readonly Named[] }) {
  return (
    <div class="table-frame">
      <table class="list stack">
        <thead class="visually-hidden">
          <tr>
            <th>Limit</th>
            <th>Kind</th>
            <th>Allows</th>
            <th>Key</th>
            <th>Of</th>
          </tr>
        </thead>
        <tbody>
          {limits.map(({ kind, scope, of, stepId }) => (
            <tr key={`${stepId ?? ""} ${kind} ${scope}`}>
              <td class="grow">
                <a class="limit-long" href={address(pathOf({ scope, kind }))}>
                  {scope}
                </a>
              </td>
              <td>
                <span class="badge">{KIND_WORDS[kind]}</span>
              </td>
              <td class="nowrap">{allowed(kind, of.limit, "per" in of ? of : null)}</td>
              <td>{of.key && <code>for each {of.key}</code>}</td>
              <td class="quiet">{stepId === null ? "the workflow" : `step ${stepId}`}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
