/** A JSON value as a tree that folds. Strings are text and stay text; long ones and long lists are cut until asked for. */

import { useState } from "preact/hooks";
import { bytes, count } from "./sizes";

const OPEN_LEVELS = 2;
const STRING_MAX = 400;
const ITEMS_MAX = 100;

interface Props {
  value: unknown;
  /** Its name in what contains it. */
  name?: string;
  /** How many levels are open at first. */
  levels?: number;
}

export function Json({ value, name, levels = OPEN_LEVELS }: Props) {
  const [open, setOpen] = useState(levels > 0);
  const [limit, setLimit] = useState(ITEMS_MAX);
  const label = name === undefined ? null : <span class="j-name">{name}</span>;
  if (value === null || typeof value !== "object") {
    return (
      <div class="j-row">
        {label}
        <Leaf value={value} />
      </div>
    );
  }
  const isList = Array.isArray(value);
  const entries = isList ? value.map((one, index) => [String(index), one] as const) : Object.entries(value);
  const [begin, end] = isList ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) {
    return (
      <div class="j-row">
        {label}
        <span class="j-mark">{`${begin}${end}`}</span>
      </div>
    );
  }
  return (
    <div class="j-node">
      <button type="button" class="j-toggle" aria-expanded={open} onClick={() => setOpen(!open)}>
        {label}
        <span class="j-mark">{open ? begin : `${begin} … ${end}`}</span>
        {!open && <span class="j-count">{count(entries.length)}</span>}
      </button>
      {open && (
        <div class="j-inner">
          {entries.slice(0, limit).map(([key, one]) => (
            <Json key={key} name={key} value={one} levels={levels - 1} />
          ))}
          {entries.length > limit && (
            <button type="button" class="link" onClick={() => setLimit(limit * 10)}>
              {count(entries.length - limit)} more
            </button>
          )}
        </div>
      )}
      {open && <span class="j-mark">{end}</span>}
    </div>
  );
}

function Leaf({ value }: { value: unknown }) {
  const [whole, setWhole] = useState(false);
  if (typeof value !== "string") return <span class={`j-${value === null ? "null" : typeof value}`}>{String(value)}</span>;
  const cut = !whole && value.length > STRING_MAX;
  return (
    <span class="j-string">
      {cut ? value.slice(0, STRING_MAX) : value}
      {cut && (
        <button type="button" class="link" onClick={() => setWhole(true)}>
          … {bytes(value.length)}
        </button>
      )}
    </span>
  );
}
