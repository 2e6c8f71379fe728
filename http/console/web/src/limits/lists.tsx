/** Who has a slot of a limit, and who waits for one. */

import { shortId } from "../parts/copy";
import { count } from "../parts/sizes";
import { Elapsed, Moment } from "../parts/time";
import { VirtualRows } from "../parts/virtual";
import { part } from "../service/requests";
import type { Limit } from "../service/types";
import { address } from "../shell/router";

const ROW_PX = 34;

const isKeyed = (limit: Limit): boolean => (limit.keys ?? []).length > 0;

export function Holders({ limit }: { limit: Limit }) {
  const { holders } = limit;
  if (holders.length === 0) return <p class="quiet">{isKeyed(limit) ? "Each key has its own." : "Nobody has a slot now."}</p>;
  return (
    <VirtualRows count={holders.length} rowHeight={ROW_PX}>
      {(first, last) => (
        <ol class="slots" start={first + 1}>
          {holders.slice(first, last).map((one) => (
            <li key={`${one.run_id} ${one.step_id ?? ""}`}>
              <Who run={one.run_id} step={one.step_id} />
              <span class="slot-facts">
                for <Elapsed from={one.since} /> <span class="quiet wide-only">
                  since <Moment at={one.since} />
                </span>
              </span>
            </li>
          ))}
        </ol>
      )}
    </VirtualRows>
  );
}

const REASONS: Readonly<Record<string, string>> = { concurrency: "all slots are taken", rate_limit: "no token is left" };

export function Waiters({ limit }: { limit: Limit }) {
  const { waiting } = limit;
  if (waiting.length === 0) return <p class="quiet">{isKeyed(limit) ? "At each key by itself." : "Nobody waits."}</p>;
  return (
    <VirtualRows count={waiting.length} rowHeight={ROW_PX}>
      {(first, last) => (
        <ol class="slots" start={first + 1}>
          {waiting.slice(first, last).map((one) => (
            <li key={one.place}>
              <span class="slot-place number">{count(one.place)}.</span>
              <Who run={one.run_id} step={one.step_id} />
              <span class="slot-facts">
                {REASONS[one.reason] ?? one.reason}
                {one.priority !== 0 && <span class="quiet">, priority {one.priority}</span>}
              </span>
            </li>
          ))}
        </ol>
      )}
    </VirtualRows>
  );
}

function Who({ run, step }: { run: string; step: string | null | undefined }) {
  return (
    <span class="slot-who">
      <a class="mono" href={address(`/runs/${part(run)}`)} title={run}>
        {shortId(run)}
      </a>
      {step && (
        <a href={address(`/runs/${part(run)}?step=${part(step)}`)} title={step}>
          {step}
        </a>
      )}
    </span>
  );
}
