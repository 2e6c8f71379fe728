/** Where everything is stored: the broker, its nodes, who leads which stream, and how much of the storage is used. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Copy } from "../parts/copy";
import { Problem, Waiting } from "../parts/messages";
import { bytes, count, plural } from "../parts/sizes";
import { usePolled } from "../service/polled";
import type { Broker } from "../service/types";

const EVERY_MS = 5000;
const STREAMS_SHOWN = 8;
const NAME_CHARS = 16;

type Stream = Broker["streams"][number];

export function BrokerReport({ telemetry }: { telemetry: number | null }) {
  const broker = usePolled<Broker>("/broker", EVERY_MS);
  return (
    <section aria-label="Broker">
      <h2 class="list-title">Broker</h2>
      {broker.data === null ? (
        broker.problem === null ? (
          <Waiting what="the broker" />
        ) : (
          <Problem problem={broker.problem} />
        )
      ) : (
        <>
          {broker.problem !== null && <Problem problem={broker.problem} />}
          <Facts broker={broker.data} telemetry={telemetry} />
          {broker.data.nodes.length > 1 && <Nodes broker={broker.data} />}
          <Streams streams={broker.data.streams} alone={broker.data.nodes.length < 2} />
        </>
      )}
    </section>
  );
}

function Facts({ broker, telemetry }: { broker: Broker; telemetry: number | null }) {
  const limit = broker.storage_limit_bytes ?? null;
  return (
    <dl class="broker-facts">
      <Fact name="Storage">
        <strong class="number">{bytes(broker.storage_bytes)}</strong> {limit === null ? "used, no known limit" : `of ${bytes(limit)} used`}
        {limit !== null && <Share used={broker.storage_bytes / limit} />}
        {telemetry !== null && <span class="quiet">telemetry {telemetry.toFixed(telemetry < 1 ? 2 : 0)} % full</span>}
      </Fact>
      <Fact name="Writes">
        {broker.fsync === "always" ? "on disk before they are acknowledged" : broker.fsync === "interval" ? "to disk once a second" : "as the broker is set"}
        {broker.fsync && <code>fsync = {broker.fsync}</code>}
      </Fact>
      <Fact name="Nodes">
        {broker.nodes.length > 1 ? `${count(broker.nodes.length)} of cluster ${broker.cluster ?? ""}` : "one, without copies"}
        {broker.nodes.some((node) => !node.online) && <span class="badge bad">{plural(broker.nodes.filter((node) => !node.online).length, "node")} away</span>}
      </Fact>
      <Fact name="Address">
        <Copy text={broker.address} label="Copy the address" />
        <span class="quiet">
          version {broker.version}, {broker.embedded ? "run by the service" : "run by others"}
        </span>
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** How full the storage is. */
function Share({ used }: { used: number }) {
  const width = Math.max(1, Math.min(120, 120 * used));
  return (
    <svg class="busy-bar" width="120" height="8" viewBox="0 0 120 8" role="img" aria-label={`${Math.round(100 * used)} % used`}>
      <rect class="busy-all" width="120" height="8" rx="4" />
      <rect class={used > 0.8 ? "busy-now full" : "busy-now"} width={width} height="8" rx="4" />
    </svg>
  );
}

function Nodes({ broker }: { broker: Broker }) {
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label="Nodes">
      <table class="list stack">
        <thead>
          <tr>
            <th>Node</th>
            <th class="right">Leads</th>
            <th class="right">Has copies of</th>
            <th>State</th>
          </tr>
        </thead>
        <tbody>
          {broker.nodes.map((node) => (
            <tr key={node.node}>
              <td class="grow">
                <Copy text={node.node} shown={short(node.node)} label="Copy the name of the node" />
              </td>
              <td class="right number" data-label="Leads">
                {plural(node.leads, "stream")}
              </td>
              <td class="right number" data-label="Has copies of">
                {plural(node.follows, "stream")}
              </td>
              <td class="nowrap" data-label="State">
                {node.online ? "online" : <span class="badge bad">away</span>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Streams({ streams, alone }: { streams: readonly Stream[]; alone: boolean }) {
  const [all, setAll] = useState(false);
  const shown = all ? streams : streams.slice(0, STREAMS_SHOWN);
  return (
    <>
      <div class="table-frame" tabIndex={0} role="region" aria-label="Streams">
        <table class="list stack">
          <thead>
            <tr>
              <th>Stream or bucket</th>
              <th class="right">Messages</th>
              <th class="right">Size</th>
              {!alone && <th>Leader</th>}
              {!alone && <th>Copies</th>}
            </tr>
          </thead>
          <tbody>
            {shown.map((stream) => (
              <tr key={stream.stream}>
                <td class="grow mono">{stream.stream}</td>
                <td class="right number" data-label="Messages">
                  {count(stream.messages)}
                </td>
                <td class="right number" data-label="Size">
                  {bytes(stream.bytes)}
                </td>
                {!alone && (
                  <td class="nowrap" data-label="Leader">
                    {stream.leader === "" ? <span class="badge bad">none</span> : <span class="mono">{short(stream.leader)}</span>}
                  </td>
                )}
                {!alone && (
                  <td class="nowrap" data-label="Copies">
                    <Copies stream={stream} />
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length < streams.length && (
        <button type="button" class="link fold-out" onClick={() => setAll(true)}>
          {plural(streams.length - shown.length, "smaller one")}
        </button>
      )}
    </>
  );
}

function Copies({ stream }: { stream: Stream }) {
  const behind = stream.copies.filter((copy) => !copy.current);
  if (stream.copies.length === 0) return <span class="quiet">none</span>;
  if (behind.length === 0) return <>{count(stream.copies.length)}, up to date</>;
  return <span class="badge warn">{behind.map((copy) => `${short(copy.node)} ${copy.online ? `behind by ${count(copy.behind)}` : "away"}`).join(", ")}</span>;
}

/** Names that a broker gives itself are long. */
const short = (name: string): string => (name.length > NAME_CHARS + 4 ? `${name.slice(0, NAME_CHARS)}…` : name);
