/** Draws only the rows of a long list that are seen. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
  count: number;
  rowHeight: number;
  /** Draws the rows from `first` up to, not including, `last`. */
  children: (first: number, last: number) => ComponentChildren;
  class?: string;
  /** Rows that are drawn beyond the edges, so that scrolling finds them there. */
  beyond?: number;
}

interface Seen {
  first: number;
  last: number;
}

/** Rows within the page, which itself scrolls: they keep their whole height, and those outside of the window are left out. */
export function VirtualRows({ count, rowHeight, children, class: name = "", beyond = 12 }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState<Seen>({ first: 0, last: Math.min(count, 60) });

  useLayoutEffect(() => {
    let frame = 0;
    function look(): void {
      frame = 0;
      const top = box.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / rowHeight) - beyond);
      const last = Math.min(count, Math.ceil((innerHeight - top) / rowHeight) + beyond);
      setSeen((before) => (before.first === first && before.last === last ? before : { first, last: Math.max(first, last) }));
    }
    function later(): void {
      if (frame === 0) frame = requestAnimationFrame(look);
    }
    look();
    addEventListener("scroll", later, { passive: true, capture: true });
    addEventListener("resize", later);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", later, { capture: true });
      removeEventListener("resize", later);
    };
  }, [count, rowHeight, beyond]);

  const { first, last } = { first: Math.min(seen.first, count), last: Math.min(seen.last, count) };
  return (
    <div ref={box} class={name} style={{ height: `${count * rowHeight}px`, position: "relative" }}>
      <div style={{ position: "absolute", insetInline: "0", top: `${first * rowHeight}px` }}>{children(first, last)}</div>
    </div>
  );
}
