/** Inputs and outputs: what came with the run, or is read when it is wanted. */

import { useEffect, useState } from "preact/hooks";
import { Copy } from "../../parts/copy";
import { Json } from "../../parts/json";
import { bytes } from "../../parts/sizes";
import { get } from "../../service/requests";

const FETCHED_BYTES_MAX = 64 * 1024;

interface Props {
  title: string;
  /** undefined: it is not here, see `size`. */
  value: unknown;
  /** Its size in bytes where it is not here; undefined for none. */
  size: number | undefined;
  /** Where it is read. */
  path: string;
  /** Takes the value out of what is read there. */
  pick?: (answer: unknown) => unknown;
}

/** A value as a tree. Up to 64 KiB it is read by itself, more on demand. */
export function Value({ title, value, size, path, pick = (answer) => answer }: Props) {
  const [found, setFound] = useState<{ value: unknown } | null>(null);
  const [wanted, setWanted] = useState(false);
  const isLarge = size !== undefined && size > FETCHED_BYTES_MAX;
  useEffect(() => {
    if (size === undefined || (isLarge && !wanted)) return;
    const abort = new AbortController();
    get<unknown>(path, abort.signal)
      .then((answer) => setFound({ value: pick(answer) }))
      .catch(() => undefined);
    return () => abort.abort();
  }, [path, size, wanted]);
  if (value === undefined && size === undefined) return null;
  const shown = found ?? (value === undefined ? null : { value });
  return (
    <section class="value">
      <h3>
        {title} {size !== undefined && <span class="quiet">{bytes(size)}</span>}
        {shown !== null && <Copy text={JSON.stringify(shown.value)} shown="copy" label={`Copy the ${title.toLowerCase()}`} />}
      </h3>
      {shown !== null ? (
        <div class="json">
          <Json value={shown.value} />
        </div>
      ) : isLarge && !wanted ? (
        <button type="button" onClick={() => setWanted(true)}>
          Show {bytes(size)}
        </button>
      ) : (
        <p class="quiet">Reading …</p>
      )}
    </section>
  );
}

/** What the step was given. How large that is, the service says first. */
export function StepInput({ path }: { path: string }) {
  const [size, setSize] = useState<number | undefined>(undefined);
  useEffect(() => {
    const abort = new AbortController();
    fetch(path, { method: "HEAD", signal: abort.signal })
      .then((answer) => setSize(answer.ok ? Number(answer.headers.get("Content-Length") ?? 0) : undefined))
      .catch(() => undefined);
    return () => abort.abort();
  }, [path]);
  return <Value title="Input" value={undefined} size={size} path={path} />;
}
