/** The graph of a definition: a box for each step, below all that it waits for. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import { kindOf, kindWord, purpose, retryOf, type Definition, type StepDefinition } from "./model/definition";
import { drawn } from "./model/layers";

const SIZES = { width: 196, height: 48, across: 20, down: 34 } as const;
const EDGE = 3; // room for lines and focus at the edges

interface Props {
  definition: Definition;
  /** Task types that nobody serves. */
  missing: ReadonlySet<string>;
  chosen: string | null;
  choose: (stepId: string | null) => void;
}

export function Graph({ definition, missing, chosen, choose }: Props) {
  const drawing = useMemo(() => drawn(definition.steps, SIZES), [definition]);
  const frame = useRef<HTMLDivElement>(null);
  // Where the whole graph does not fit, its middle is seen first.
  useEffect(() => void frame.current?.scrollTo({ left: (frame.current.scrollWidth - frame.current.clientWidth) / 2 }), []);
  const steps = new Map(definition.steps.map((step) => [step.id, step]));
  const [width, height] = [drawing.width + 2 * EDGE, drawing.height + 2 * EDGE];
  return (
    <div ref={frame} class="graph" tabIndex={0} role="region" aria-label="Graph of the steps">
      <div class="graph-paper" style={{ width: `${width}px`, height: `${height}px` }}>
        <svg width={width} height={height} viewBox={`${-EDGE} ${-EDGE} ${width} ${height}`} aria-hidden="true">
          {drawing.curves.map(({ from, to, path }) => (
            <path key={`${from} ${to}`} class={`edge${chosen === from || chosen === to ? " marked" : ""}`} d={path} />
          ))}
        </svg>
        {drawing.boxes.map(({ id, x, y }) => (
          <Box
            key={id}
            step={steps.get(id)!}
            definition={definition}
            isMissing={missing.has(steps.get(id)!.task ?? "")}
            isChosen={chosen === id}
            style={{ left: `${x + EDGE}px`, top: `${y + EDGE}px`, width: `${SIZES.width}px`, height: `${SIZES.height}px` }}
            onClick={() => choose(chosen === id ? null : id)}
          />
        ))}
      </div>
    </div>
  );
}

interface BoxProps {
  step: StepDefinition;
  definition: Definition;
  isMissing: boolean;
  isChosen: boolean;
  style: Record<string, string>;
  onClick: () => void;
}

function Box({ step, definition, isMissing, isChosen, style, onClick }: BoxProps) {
  const marks = marksOf(step, definition);
  return (
    <button type="button" class={`box k-${kindOf(step)}${isMissing ? " missing" : ""}`} aria-pressed={isChosen} style={style} onClick={onClick} data-step={step.id}>
      <span class="box-head">
        <span class="box-name">{step.name ?? step.id}</span>
        {marks.map(([mark, said]) => (
          <span key={said} class="box-mark" title={said}>
            <span aria-hidden="true">{mark}</span>
            <span class="visually-hidden">{said}</span>
          </span>
        ))}
      </span>
      <span class="box-foot">
        {kindOf(step) !== "normal" && <span class="box-kind">{kindWord(step)}</span>}
        <span class="box-purpose mono">{purpose(step)}</span>
        {isMissing && <span class="visually-hidden">Nobody serves its task.</span>}
      </span>
    </button>
  );
}

/** What is told of a step in few signs: retries, a timeout, a condition, what follows its failure, what undoes it. */
function marksOf(step: StepDefinition, definition: Definition): (readonly [string, string])[] {
  const retry = retryOf(step, definition);
  return [
    ...(retry && retry.max_attempts > 0 ? [[`↻${retry.max_attempts}`, `Up to ${retry.max_attempts} retries`] as const] : []),
    ...(step.timeout ? [[step.timeout, `Timeout ${step.timeout}`] as const] : []),
    ...(step.when || step.skip_if ? [["if", "Has a condition"] as const] : []),
    ...(step.on_failure ? [["!", `On failure: ${step.on_failure.task}`] as const] : []),
    ...(step.compensate ? [["⤺", `Undone by ${step.compensate.task}`] as const] : []),
  ];
}
