/** Where the boxes of a graph stand: each step in a layer below all that it waits for, the layers sorted so that few edges cross. */

export interface Box {
  readonly id: string;
  readonly x: number;
  readonly y: number;
}

export interface Curve {
  readonly from: string;
  readonly to: string;
  /** The path of an SVG. */
  readonly path: string;
}

export interface Drawing {
  readonly boxes: readonly Box[];
  readonly curves: readonly Curve[];
  readonly width: number;
  readonly height: number;
}

export interface Sizes {
  readonly width: number;
  readonly height: number;
  readonly across: number;
  readonly down: number;
}

interface Node {
  readonly id: string;
  readonly depends_on?: readonly string[] | null;
}

/** A step in its layer, or a bend of an edge that crosses the layer. */
interface Stop {
  readonly id: string;
  readonly layer: number;
  readonly before: Stop[];
  readonly after: Stop[];
  readonly bend: boolean;
  place: number;
}

const SWEEPS = 6;
const BEND_SHARE = 0.16; // of a box's width, so that edges that pass by stand clear of boxes

export function drawn(nodes: readonly Node[], sizes: Sizes): Drawing {
  const layerOf = layersOf(nodes);
  const stops = new Map(nodes.map((node) => [node.id, stop(node.id, layerOf.get(node.id)!, false)]));
  const layers: Stop[][] = [];
  const put = (one: Stop): Stop => ((layers[one.layer] ??= []).push(one), one);
  for (const one of stops.values()) put(one);
  const ways = nodes.flatMap((node) =>
    (node.depends_on ?? []).filter((from) => stops.has(from)).map((from) => way(stops.get(from)!, stops.get(node.id)!, put)),
  );
  sorted(layers);
  const width = placed(layers, sizes);
  const left = (one: Stop): number => one.place - (one.bend ? 0 : sizes.width / 2);
  const top = (layer: number): number => layer * (sizes.height + sizes.down);
  return {
    boxes: [...stops.values()].map((one) => ({ id: one.id, x: left(one), y: top(one.layer) })),
    curves: ways.map((stops) => ({ from: stops[0]!.id, to: stops.at(-1)!.id, path: curve(stops, top, sizes) })),
    width,
    height: layers.length * (sizes.height + sizes.down) - sizes.down,
  };
}

/** The length of the longest way to each step. */
function layersOf(nodes: readonly Node[]): Map<string, number> {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const found = new Map<string, number>();
  const waiting = [...nodes];
  for (let rounds = 0; waiting.length > 0 && rounds <= nodes.length; rounds++) {
    for (let at = waiting.length - 1; at >= 0; at--) {
      const before = (waiting[at]!.depends_on ?? []).filter((id) => byId.has(id));
      if (before.some((id) => !found.has(id))) continue;
      found.set(waiting[at]!.id, 1 + Math.max(-1, ...before.map((id) => found.get(id)!)));
      waiting.splice(at, 1);
    }
  }
  for (const node of waiting) found.set(node.id, 0); // a cycle, which the service refuses
  return found;
}

const stop = (id: string, layer: number, bend: boolean): Stop => ({ id, layer, before: [], after: [], bend, place: 0 });

/** The stops of an edge, with a bend in each layer between its ends. */
function way(from: Stop, to: Stop, put: (one: Stop) => Stop): Stop[] {
  const stops = [from];
  for (let layer = from.layer + 1; layer < to.layer; layer++) stops.push(put(stop(`${from.id} ${to.id} ${layer}`, layer, true)));
  stops.push(to);
  for (let at = 1; at < stops.length; at++) {
    stops[at]!.before.push(stops[at - 1]!);
    stops[at - 1]!.after.push(stops[at]!);
  }
  return stops;
}

/** Moves each stop to the middle of its neighbours, layer by layer, down and up. */
function sorted(layers: readonly Stop[][]): void {
  const number = (layer: Stop[]) => layer.forEach((one, index) => (one.place = index));
  layers.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const wanted = new Map(layer.map((one) => [one, middle(down ? one.before : one.after, one.place)]));
      layer.sort((a, b) => wanted.get(a)! - wanted.get(b)!);
      number(layer);
    }
  }
}

function middle(stops: readonly Stop[], otherwise: number): number {
  return stops.length === 0 ? otherwise : stops.reduce((sum, one) => sum + one.place, 0) / stops.length;
}

/** Gives each stop the x of its middle: near those of its neighbours, never upon one another. Returns the whole width. */
function placed(layers: readonly Stop[][], sizes: Sizes): number {
  const room = (one: Stop): number => (one.bend ? sizes.width * BEND_SHARE : sizes.width + sizes.across);
  for (const layer of layers) {
    let x = 0;
    for (const one of layer) {
      one.place = x + room(one) / 2;
      x += room(one);
    }
    for (const one of layer) one.place -= x / 2;
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) settle(layer, (one) => middle(down ? one.before : one.after, one.place), room);
  }
  const all = layers.flat();
  const half = (one: Stop): number => (one.bend ? 0 : sizes.width / 2);
  const left = Math.min(...all.map((one) => one.place - half(one)));
  for (const one of all) one.place -= left;
  return Math.max(...all.map((one) => one.place + half(one)));
}

/** The places that are wanted, moved apart where they are too near; what was moved is moved back by half of it. */
function settle(layer: readonly Stop[], wanted: (one: Stop) => number, room: (one: Stop) => number): void {
  const aims = layer.map(wanted);
  const apart = (at: number): number => (room(layer[at - 1]!) + room(layer[at]!)) / 2;
  const right = [...aims];
  for (let at = 1; at < layer.length; at++) right[at] = Math.max(right[at]!, right[at - 1]! + apart(at));
  const left = [...aims];
  for (let at = layer.length - 2; at >= 0; at--) left[at] = Math.min(left[at]!, left[at + 1]! - apart(at + 1));
  layer.forEach((one, at) => (one.place = (right[at]! + left[at]!) / 2));
}

/** A smooth line from the foot of the first box to the head of the last one, through the bends. */
function curve(stops: readonly Stop[], top: (layer: number) => number, sizes: Sizes): string {
  const [first, ...others] = stops;
  let y = top(first!.layer) + sizes.height;
  let x = first!.place;
  let path = `M${round(x)} ${round(y)}`;
  for (const one of others) {
    const head = top(one.layer);
    const bow = (head - y) / 2;
    path += ` C${round(x)} ${round(y + bow)} ${round(one.place)} ${round(head - bow)} ${round(one.place)} ${round(head)}`;
    [x, y] = [one.place, head];
    if (one.bend) path += ` V${round((y = head + sizes.height))}`;
  }
  return path;
}

const round = (value: number): number => Math.round(value * 10) / 10;
