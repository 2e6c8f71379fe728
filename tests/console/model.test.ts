// What the page of a run computes, with random graphs and with recorded histories. Run by test_model.py.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { criticalPath } from "../../http/console/web/src/run/model/critical";
import { idle, Scale } from "../../http/console/web/src/run/model/scale";
import { Spans } from "../../http/console/web/src/run/model/spans";
import { tracksOf, type Edge, type Node } from "../../http/console/web/src/run/model/tracks";
import { bytes, short } from "../../http/console/web/src/parts/sizes";
import { duration } from "../../http/console/web/src/parts/times";
import type { RunEvent } from "../../http/console/web/src/service/types";

/** Numbers from 0 to 1 that are the same in every run. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

function graph(seed: number): { nodes: Node[]; edges: Edge[] } {
  const random = seeded(seed);
  const nodes = Array.from({ length: 1 + Math.floor(random() * 24) }, (_, number) => ({ id: `s${number}` }));
  const density = random() * 0.4;
  const edges: Edge[] = [];
  for (let to = 1; to < nodes.length; to += 1) {
    for (let from = 0; from < to; from += 1) {
      if (random() < density) edges.push({ from: `s${from}`, to: `s${to}` });
    }
  }
  return { nodes, edges };
}

test("each step has a row of its own, behind all that it waits for", () => {
  for (let seed = 0; seed < 500; seed += 1) {
    const { nodes, edges } = graph(seed);
    const tracks = tracksOf(nodes, edges);
    assert.deepEqual([...tracks.order].sort(), nodes.map((node) => node.id).sort());
    for (const { from, to } of edges) assert.ok(tracks.row.get(from)! < tracks.row.get(to)!, `${seed}: ${from} before ${to}`);
  }
});

test("every dependency is part of one line, and lines of a track do not overlap", () => {
  for (let seed = 0; seed < 500; seed += 1) {
    const { nodes, edges } = graph(seed);
    const { lines, row } = tracksOf(nodes, edges);
    for (const { from, to } of edges) {
      const found = lines.filter((line) => line.sources.includes(row.get(from)!) && line.targets.includes(row.get(to)!));
      assert.equal(found.length, 1, `${seed}: ${from} to ${to}`);
    }
    const drawn = lines.flatMap((line) => line.sources.flatMap((source) => line.targets.map((target) => `${source}-${target}`)));
    assert.equal(drawn.length, edges.length, `${seed}: nothing that is no dependency`);
    for (const one of lines) {
      for (const other of lines) {
        if (one === other || one.track !== other.track) continue;
        assert.ok(one.bottom <= other.top || other.bottom <= one.top, `${seed}: track ${one.track}`);
      }
    }
  }
});

test("a join of a hundred costs two tracks", () => {
  const nodes = [{ id: "a" }, ...Array.from({ length: 100 }, (_, number) => ({ id: `b${number}` })), { id: "c" }];
  const edges = nodes.slice(1, 101).flatMap((node) => [
    { from: "a", to: node.id },
    { from: node.id, to: "c" },
  ]);
  assert.ok(tracksOf(nodes, edges).tracks <= 2);
});

test("the critical path goes from the last end back over the latest ones", () => {
  const before = new Map([
    ["a", []],
    ["b", ["a"]],
    ["c", ["a"]],
    ["d", ["b", "c"]],
  ]);
  const at = (second: number) => ({ finished_at: `2026-11-23T00:00:0${second}.000000Z` });
  assert.deepEqual([...criticalPath({ a: at(1), b: at(2), c: at(4), d: at(5) }, before)], ["d", "c", "a"]);
  assert.equal(criticalPath({ a: {} }, before).size, 0);
});

test("the axis is monotonous and has an inverse, with and without folds", () => {
  for (let seed = 0; seed < 200; seed += 1) {
    const random = seeded(seed);
    const [from, to] = [1000 * random(), 1000 + 100_000 * random() + 1];
    const busy = Array.from({ length: 5 }, () => from + (to - from) * random()).map((at) => ({ from: at, to: at + 10 }));
    const scale = new Scale(from, to, idle(busy, from, to));
    assert.ok(Math.abs(scale.x(from)) < 1e-9 && Math.abs(scale.x(to) - 1) < 1e-9);
    let last = -1;
    for (let part = 0; part <= 50; part += 1) {
      const at = from + ((to - from) * part) / 50;
      const x = scale.x(at);
      assert.ok(x >= last, `seed ${seed}`);
      assert.ok(Math.abs(scale.at(x) - at) < 1e-3 * (to - from), `seed ${seed}`);
      last = x;
    }
    for (const tick of scale.ticks(8)) assert.ok(tick.x >= 0 && tick.x <= 1 + 1e-9);
  }
});

test("what was folded is long, and nothing was carried out in it", () => {
  const folds = idle([{ from: 0, to: 1000 }, { from: 60_000, to: 61_000 }], 0, 61_000);
  assert.equal(folds.length, 1);
  assert.ok(folds[0]!.from >= 1000 && folds[0]!.to <= 60_000);
  assert.deepEqual(idle([{ from: 0, to: 60_000 }], 0, 61_000), []);
});

test("segments of recorded histories are in order, and over when the run is", () => {
  const recordings = JSON.parse(readFileSync(process.env["RECORDINGS"]!, "utf8")) as Record<string, RunEvent[]>;
  assert.ok(Object.keys(recordings).length > 20);
  for (const [name, events] of Object.entries(recordings)) {
    const spans = new Spans();
    for (const event of events) spans.add(event);
    assert.notEqual(spans.startedAt ?? spans.lastAt, null, name);
    for (const [stepId, step] of spans.steps) {
      for (const [index, one] of step.segments.entries()) {
        const next = step.segments[index + 1];
        if (next !== undefined) {
          assert.notEqual(one.to, null, `${name}: ${stepId} has one that lasts before another`);
          assert.ok(one.from <= next.from, `${name}: ${stepId}`);
        }
        assert.equal(one.to === null, one.outcome === null, `${name}: ${stepId}`);
        if (one.to !== null) assert.ok(one.to >= one.from, `${name}: ${stepId} ends before it begins`);
      }
    }
  }
});

/** The spans of a run that began at second 0; events have their seconds as `at` and `began`. */
function spansOf(...events: (Partial<RunEvent> & { at: number; began?: number })[]): Spans {
  const time = (second: number): string => `2026-11-23T00:00:0${second}.000000Z`;
  const spans = new Spans();
  spans.add({ seq: 1, type: "workflow.started", run_id: "r", timestamp: time(0) });
  for (const [index, { at, began, ...event }] of events.entries()) {
    const beganAt = began === undefined ? {} : { started_at: time(began) };
    spans.add({ seq: index + 2, type: "step.completed", run_id: "r", step_id: "a", timestamp: time(at), ...beganAt, ...event });
  }
  return spans;
}

const second = (spans: Spans, ms: number): number => (ms - spans.startedAt!) / 1000;

function segmentsOf(spans: Spans): unknown[] {
  const segments = spans.steps.get("a")!.segments;
  return segments.map((one) => [one.kind, second(spans, one.from), one.to === null ? null : second(spans, one.to), one.outcome, one.worker, one.attempt]);
}

test("an answer that says when its execution began is a segment as a start and an answer are", () => {
  const by = { worker_id: "w", attempt_number: 1 };
  for (const [type, outcome] of [["step.completed", "completed"], ["step.failed", "failed"], ["step.continue", "again"]] as const) {
    const one = spansOf({ type, at: 3, began: 1, ...by, payload: { error: "no", items: 3, wake_at: "never" } });
    const two = spansOf({ type: "step.started", at: 1, ...by }, { type, at: 3, ...by, payload: { error: "no", items: 3, wake_at: "never" } });
    assert.deepEqual(segmentsOf(one)[0], ["run", 1, 3, outcome, "w", 1]);
    assert.deepEqual(segmentsOf(one), segmentsOf(two));
    assert.equal(one.steps.get("a")!.segments[0]!.error, two.steps.get("a")!.segments[0]!.error);
    assert.equal(one.steps.get("a")!.segments[0]!.seq, 2);
  }
});

test("a start in an answer of a worker without a name is that of an execution, whatever its output looks like", () => {
  assert.deepEqual(segmentsOf(spansOf({ at: 3, began: 1, payload: { items: 3 } })), [["run", 1, 3, "completed", null, 0]]);
});

test("an answer after a start that was told has no start of its own", () => {
  const by = { worker_id: "w", attempt_number: 1 };
  assert.deepEqual(segmentsOf(spansOf({ type: "step.started", at: 1, ...by }, { at: 3, ...by })), [["run", 1, 3, "completed", "w", 1]]);
});

test("the answer of a later delivery ends what the lost worker had begun", () => {
  const spans = spansOf({ type: "step.started", at: 1, worker_id: "v", attempt_number: 1 }, { at: 5, began: 4, worker_id: "w", attempt_number: 1, delivery: 2 });
  assert.deepEqual(segmentsOf(spans), [
    ["run", 1, 4, "lost", "v", 1],
    ["run", 4, 5, "completed", "w", 1],
  ]);
});

test("an execution begins before its end, whatever its answer says", () => {
  for (const started_at of ["yesterday", "2026-11-23T00:00:09.000000Z"]) {
    assert.deepEqual(segmentsOf(spansOf({ at: 3, started_at, worker_id: "w" })), [["run", 3, 3, "completed", "w", 0]]);
  }
});

test("elements that say when they began are counted by that time", () => {
  const item = (number: number) => ({ step_id: `a.${number}`, item: number, worker_id: "w" });
  const spans = spansOf({ type: "step.started", at: 1, payload: { items: 3 } }, { at: 4, began: 3, ...item(0) }, { type: "step.failed", at: 5, began: 2, ...item(1) }, { type: "step.started", at: 6, ...item(2) });
  const { began, ended, failed } = spans.steps.get("a")!.elements!;
  assert.deepEqual([began, ended, failed].map((times) => times.map((at) => second(spans, at))), [[2, 3, 6], [4, 5], [5]]);
});

test("numbers are short, and their units right", () => {
  assert.deepEqual([0.4, 5, 999, 1500, 61_000, 3_600_000, 90_000_000].map(duration), ["400 µs", "5.0 ms", "999 ms", "1.50 s", "1m 01s", "1h 00m", "1d 1h"]);
  assert.deepEqual([0, 999, 1000, 12_345, 999_499, 999_500].map(short), ["0", "999", "1.0k", "12k", "999k", "1.0M"]);
  assert.deepEqual([0, 1023, 1024, 1_048_576].map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.0 MiB"]);
});
