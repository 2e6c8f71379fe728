/** The settings of the running service, where each came from, and what it is for. */

import { Problem, Waiting } from "../parts/messages";
import { usePolled } from "../service/polled";
import type { Setting } from "../service/types";
import { place, setParams } from "../shell/router";

export function Settings() {
  const settings = usePolled<Setting[]>("/settings");
  if (settings.data === null) return settings.problem === null ? <Waiting what="the settings" /> : <Problem problem={settings.problem} />;
  const text = (place.value.params.get("q") ?? "").toLowerCase();
  const shown = settings.data.filter((one) => Object.values(one).join("\n").toLowerCase().includes(text));
  const given = settings.data.filter((one) => one.source !== "default").length;
  return (
    <>
      <div class="list-head">
        <span class="quiet">
          {given} of {settings.data.length} are not the default; the names are those of the file, of <code>--flags</code> and of <code>SERVICE_…</code>
        </span>
        <input
          type="search"
          aria-label="Find settings"
          placeholder="Find a setting"
          value={place.value.params.get("q") ?? ""}
          onInput={(event) => setParams({ q: event.currentTarget.value }, { replace: true })}
        />
      </div>
      {shown.length === 0 ? (
        <p class="quiet">No setting is like that.</p>
      ) : (
        <div class="table-frame" tabIndex={0} role="region" aria-label="Settings">
          <table class="list stack settings">
            <thead>
              <tr>
                <th>Setting</th>
                <th>Value</th>
                <th>From</th>
                <th>What it is</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((one) => (
                <tr key={one.key}>
                  <td class="mono nowrap">{one.key}</td>
                  <td class="mono setting-value">{one.value === "" ? <span class="none">not set</span> : one.value}</td>
                  <td class="nowrap" data-label="from">
                    {one.source === "default" ? <span class="quiet">default</span> : <span class="badge">{one.source}</span>}
                  </td>
                  <td class="quiet grow setting-about">{one.about}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
