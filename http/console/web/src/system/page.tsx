/** The service itself: how it is, what it does, who may use it and who has. */

import { Problem, Waiting } from "../parts/messages";
import { usePolled } from "../service/polled";
import type { Health, TelemetryHealth } from "../service/types";
import { address, place } from "../shell/router";
import { may } from "../shell/session";
import { Audit } from "./audit";
import { BrokerReport } from "./broker";
import { DoctorReport } from "./doctor";
import { Figures } from "./figures";
import { Keys } from "./keys";
import { useMetrics } from "./metrics";
import { Processes } from "./processes";
import { Settings } from "./settings";

const EVERY_MS = 5000;

export function SystemPage() {
  const health = usePolled<Health>("/health", EVERY_MS);
  const view = place.value.path.split("/")[2] ?? "";
  return (
    <div class="list-page">
      <header class="list-head">
        <h1>System</h1>
        {health.problem !== null ? <span class="badge bad">not healthy</span> : health.data !== null && <span class="badge good">healthy</span>}
        {health.data?.leaf && <span class={health.data.leaf.connected ? "badge" : "badge warn"}>{health.data.leaf.connected ? "leaf, connected" : "leaf, hub away"}</span>}
        {may("admin") && (
          <nav class="page-views" aria-label="Views of the system">
            <View path="/system" label="Overview" isHere={view === ""} />
            <View path="/system/audit" label="Audit log" isHere={view === "audit"} />
            <View path="/system/keys" label="Keys" isHere={view === "keys"} />
            <View path="/system/settings" label="Settings" isHere={view === "settings"} />
          </nav>
        )}
      </header>
      {health.problem !== null && <Problem problem={health.problem} />}
      {view === "audit" ? <Audit /> : view === "keys" ? <Keys /> : view === "settings" ? <Settings /> : <Overview />}
    </div>
  );
}

function View({ path, label, isHere }: { path: string; label: string; isHere: boolean }) {
  return (
    <a href={address(path)} aria-current={isHere ? "page" : undefined}>
      {label}
    </a>
  );
}

function Overview() {
  const { readings, problem } = useMetrics();
  const telemetry = usePolled<TelemetryHealth>("/health/telemetry", 15_000);
  const reading = readings.at(-1);
  return (
    <>
      <DoctorReport />
      {reading === undefined ? (
        problem === null ? (
          <Waiting what="the figures" />
        ) : (
          <Problem problem={problem} />
        )
      ) : (
        <>
          <h2 class="list-title">
            Figures <span class="quiet">since this page was opened; GET /metrics has them for Prometheus</span>
          </h2>
          <Figures readings={readings} />
          <Processes readings={readings} />
        </>
      )}
      <BrokerReport telemetry={telemetry.data?.telemetry.stream.percent ?? null} />
    </>
  );
}
