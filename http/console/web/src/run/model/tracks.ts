/**
 * The order of a run's steps on rows, and the lines between them, as version control shows branches: a line leaves the
 * steps that others wait for, runs down beside the rows, and enters those that wait. Steps that wait for the same
 * steps share one line, so that a join of a hundred costs one track.
 */

export interface Node {
  readonly id: string;
  readonly handles?: string | null | undefined;
}

export interface Edge {
  readonly from: string;
  readonly to: string;
}

/** A line from the rows `sources` down to the rows `targets`, drawn in `track`. */
export interface Line {
  readonly track: number;
  readonly top: number;
  readonly bottom: number;
  readonly sources: readonly number[];
  readonly targets: readonly number[];
  readonly ids: ReadonlySet<string>;
}

export interface Tracks {
  /** Ids, from the first row to the last. */
  readonly order: readonly string[];
  readonly row: ReadonlyMap<string, number>;
  /** The track of each row's dot. */
  readonly track: readonly number[];
  readonly lines: readonly Line[];
  readonly tracks: number;
  readonly before: ReadonlyMap<string, readonly string[]>;
  readonly after: ReadonlyMap<string, readonly string[]>;
}

export function tracksOf(nodes: readonly Node[], edges: readonly Edge[]): Tracks {
  const before = new Map<string, string[]>(nodes.map((node) => [node.id, []]));
  const after = new Map<string, string[]>(nodes.map((node) => [node.id, []]));
  for (const { from, to } of edges) {
    if (!before.has(from) || !before.has(to)) continue;
    before.get(to)!.push(from);
    after.get(from)!.push(to);
  }
  const order = ordered(nodes, before, after);
  const row = new Map(order.map((id, index) => [id, index]));
  const lines = drawn(order, row, before);
  const track = dots(order.length, lines);
  const tracks = 1 + Math.max(0, ...track, ...lines.map((line) => line.track));
  return { order, row, track, lines, tracks, before, after };
}

/** Each step behind all that it waits for, and branches one after the other: what a step lets begin comes right behind. */
function ordered(
  nodes: readonly Node[],
  before: ReadonlyMap<string, readonly string[]>,
  after: ReadonlyMap<string, readonly string[]>,
): string[] {
  const left = new Map(nodes.map((node) => [node.id, before.get(node.id)!.length]));
  const place = new Map(nodes.map((node, index) => [node.id, node.handles ? index - nodes.length : index]));
  const byPlaceBackwards = (a: string, b: string) => place.get(b)! - place.get(a)!;
  const stack = nodes.filter((node) => left.get(node.id) === 0).map((node) => node.id);
  stack.sort(byPlaceBackwards);
  const order: string[] = [];
  while (stack.length > 0) {
    const id = stack.pop()!;
    order.push(id);
    const ready = after.get(id)!.filter((next) => {
      left.set(next, left.get(next)! - 1);
      return left.get(next) === 0;
    });
    stack.push(...ready.sort(byPlaceBackwards));
  }
  return order;
}

/** A line for each set of steps that others wait for, in the first track that is free beside its rows. */
function drawn(
  order: readonly string[],
  row: ReadonlyMap<string, number>,
  before: ReadonlyMap<string, readonly string[]>,
): Line[] {
  const groups = new Map<string, { sources: number[]; targets: number[] }>();
  for (const id of order) {
    const sources = before.get(id)!.map((from) => row.get(from)!);
    if (sources.length === 0) continue;
    sources.sort((a, b) => a - b);
    const key = sources.join();
    const group = groups.get(key) ?? { sources, targets: [] };
    group.targets.push(row.get(id)!);
    groups.set(key, group);
  }
  const spans = [...groups.values()].map(({ sources, targets }) => ({
    sources,
    targets,
    top: sources[0]!,
    bottom: Math.max(...targets),
  }));
  spans.sort((a, b) => a.top - b.top || a.bottom - b.bottom);
  const freeFrom: number[] = []; // the row from which each track is free
  return spans.map(({ sources, targets, top, bottom }) => {
    let track = freeFrom.findIndex((free) => free <= top);
    if (track < 0) track = freeFrom.length;
    freeFrom[track] = bottom;
    const ids = new Set([...sources, ...targets].map((index) => order[index]!));
    return { track, top, bottom, sources, targets, ids };
  });
}

/** A dot stands on the line that leads to its row, or on one that leaves it, whichever is further left. */
function dots(rows: number, lines: readonly Line[]): number[] {
  const track = new Array<number>(rows).fill(Infinity);
  for (const line of lines) {
    for (const row of line.targets) track[row] = Math.min(track[row]!, line.track);
    if (line.sources.length === 1) track[line.top] = Math.min(track[line.top]!, line.track);
  }
  return track.map((one) => (one === Infinity ? 0 : one));
}
