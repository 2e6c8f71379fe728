/** Which lines of a text were taken out and which were added to make another one of it. */

export interface Line {
  readonly sign: "same" | "gone" | "new";
  readonly text: string;
  /** Its number in the former and in the latter text; null in one that does not have it. */
  readonly before: number | null;
  readonly after: number | null;
}

const CELLS_MAX = 4_000_000; // of the table: beyond, what differs is shown as one block

export function diff(former: string, latter: string): Line[] {
  const [a, b] = [former.split("\n"), latter.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail += 1;
  const [before, after] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  const add = (sign: Line["sign"], text: string): void => {
    lines.push({ sign, text, before: sign === "new" ? null : ++i, after: sign === "gone" ? null : ++j });
  };
  for (const text of a.slice(0, head)) add("same", text);
  for (const [sign, text] of changed(before, after)) add(sign, text);
  if (tail > 0) for (const text of a.slice(-tail)) add("same", text);
  return lines;
}

/** By the longest list of lines that both have. */
function changed(a: readonly string[], b: readonly string[]): (readonly [Line["sign"], string])[] {
  if (a.length * b.length > CELLS_MAX) return [...a.map((text) => ["gone", text] as const), ...b.map((text) => ["new", text] as const)];
  const width = b.length + 1;
  const length = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const at = i * width + j;
      length[at] = a[i] === b[j] ? length[at + width + 1]! + 1 : Math.max(length[at + width]!, length[at + 1]!);
    }
  }
  const found: (readonly [Line["sign"], string])[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const at = i * width + j;
    if (i < a.length && j < b.length && a[i] === b[j]) found.push(["same", a[(j++, i++)]!]);
    else if (j === b.length || (i < a.length && length[at + width]! >= length[at + 1]!)) found.push(["gone", a[i++]!]);
    else found.push(["new", b[j++]!]);
  }
  return found;
}

/** The lines that differ with `around` lines of what stands around them; a number is how many are left out. */
export function folded(lines: readonly Line[], around = 3): (Line | number)[] {
  const near = new Set<number>();
  lines.forEach((line, at) => {
    if (line.sign !== "same") for (let one = at - around; one <= at + around; one++) near.add(one);
  });
  const found: (Line | number)[] = [];
  let left = 0;
  lines.forEach((line, at) => {
    if (near.has(at)) {
      if (left > 0) found.push(left);
      left = 0;
      found.push(line);
    } else left += 1;
  });
  if (left > 0) found.push(left);
  return found;
}
