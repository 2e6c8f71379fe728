/** Ids, which a click copies. */

import { useState } from "preact/hooks";

interface Props {
  text: string;
  /** What is shown instead of the whole text. */
  shown?: string;
  label?: string;
}

export function Copy({ text, shown, label = "Copy" }: Props) {
  const [copied, setCopied] = useState(false);
  async function copy(event: Event): Promise<void> {
    event.preventDefault();
    event.stopPropagation();
    await write(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1200);
  }
  return (
    <button type="button" class={`copy mono${copied ? " copied" : ""}`} title={`${label}: ${text}`} onClick={copy}>
      {shown ?? text}
      <span class="visually-hidden">{copied ? " copied" : `, ${label.toLowerCase()}`}</span>
    </button>
  );
}

/** Pages that do not come over TLS, nor from this machine, have no clipboard: then a selection is copied. */
async function write(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** The first characters of a run id, which begin with its time, and the last, which tell it from its neighbours. */
export const shortId = (id: string): string => (id.length > 14 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id);
