/** The elements of a map: by status, in pages, failed ones first. */

import { useEffect, useState } from "preact/hooks";
import { StatusIcon } from "../../parts/status";
import { Elapsed } from "../../parts/time";
import { count } from "../../parts/sizes";
import { part, query, send } from "../../service/requests";
import type { ItemCounts, MapItem } from "../../service/types";
import { address } from "../../shell/router";

interface Props {
  runId: string;
  stepId: string;
  counts: ItemCounts;
}

const STATUSES = ["failed", "running", "queued", "completed", "cancelled"] as const;
type Status = (typeof STATUSES)[number];
const PAGE = 50;

export function Elements({ runId, stepId, counts }: Props) {
  const [wanted, setWanted] = useState<Status | null>(null);
  const status = wanted ?? STATUSES.find((one) => counts[one] > 0) ?? "completed";
  const path = `/runs/${part(runId)}/steps/${part(stepId)}/items${query({ status, limit: PAGE })}`;
  const [found, setFound] = useState<{ path: string; items: readonly MapItem[]; next: string | null } | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    void send<MapItem[]>(path, { signal: abort.signal })
      .then((answer) => setFound({ path, items: answer.data, next: answer.next }))
      .catch(() => undefined);
    return () => abort.abort();
  }, [path, counts[status]]);

  async function more(next: string): Promise<void> {
    const answer = await send<MapItem[]>(next);
    setFound((before) => (before === null ? null : { ...before, items: [...before.items, ...answer.data], next: answer.next }));
  }

  const items = found?.path === path ? found.items : [];
  return (
    <section>
      <h3>Elements</h3>
      <div class="facets" role="group" aria-label="Elements by status">
        {STATUSES.filter((one) => counts[one] > 0).map((one) => (
          <button key={one} type="button" class="tool" aria-pressed={one === status} onClick={() => setWanted(one)}>
            {one} {count(counts[one])}
          </button>
        ))}
      </div>
      <ol class="elements">
        {items.map((item) => (
          <li key={item.item}>
            <span class="number">{item.item}</span>
            <StatusIcon status={item.status} />
            <Elapsed from={item.started_at} to={item.finished_at} />
            {item.child_run_id ? <a href={address(`/runs/${part(item.child_run_id)}`)}>child run</a> : <Result item={item} />}
          </li>
        ))}
      </ol>
      {found !== null && found.next !== null && (
        <button type="button" class="link" onClick={() => void more(found.next!)}>
          more
        </button>
      )}
    </section>
  );
}

function Result({ item }: { item: MapItem }) {
  if (item.error) return <span class="element-error">{item.error.slice(0, 200)}</span>;
  return <span class="mono quiet element-output">{item.output === undefined ? "" : JSON.stringify(item.output).slice(0, 120)}</span>;
}
