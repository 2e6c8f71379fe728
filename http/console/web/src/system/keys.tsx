/** The keys of the API: what each may do, new ones, and revoking them. A key itself is shown once. */

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { Copy } from "../parts/copy";
import { Dialog, quoted } from "../parts/dialog";
import { Empty, Problem, Waiting } from "../parts/messages";
import { Ago, Moment } from "../parts/time";
import { usePolled } from "../service/polled";
import { part, post, send } from "../service/requests";
import type { ApiKey, CreatedKey } from "../service/types";
import { session, signIn } from "../shell/session";

const EVERY_MS = 5000;

/** Outlives the page: with the first key, everybody has to sign in, and then the page begins anew. */
const created = signal<CreatedKey | null>(null);

export function Keys() {
  const keys = usePolled<ApiKey[]>("/keys", EVERY_MS);
  const [creates, setCreates] = useState(false);
  const [revoked, setRevoked] = useState<ApiKey | null>(null);
  if (keys.data === null) return keys.problem === null ? <Waiting what="the keys" /> : <Problem problem={keys.problem} />;
  return (
    <>
      {created.value !== null && (
        <div class="banner act new-key" role="status">
          <div class="banner-text">
            <strong>The key of {created.value.name} is shown this one time:</strong>
            <Copy text={created.value.key} label="Copy the key" />
          </div>
          <button type="button" onClick={() => (created.value = null)}>
            I have it
          </button>
        </div>
      )}
      <div class="list-head">
        <button type="button" class="primary" onClick={() => setCreates(true)}>
          Create a key…
        </button>
        {keys.problem !== null && <span class="badge warn">connection lost, trying again</span>}
      </div>
      {keys.data.length === 0 ? (
        <Empty title="There are no keys.">
          <p>With the first key, every request needs one. The first must be of scope admin; you are signed in with it at once.</p>
        </Empty>
      ) : (
        <div class="table-frame" tabIndex={0} role="region" aria-label="Keys">
          <table class="list stack">
            <thead>
              <tr>
                <th>Name</th>
                <th>Scope</th>
                <th>Workflows</th>
                <th>Created</th>
                <th>By</th>
                <th>Expires</th>
                <th class="right">
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {keys.data.map((key) => (
                <tr key={key.name}>
                  <td class="grow">
                    <span class="strong">{key.name}</span>
                  </td>
                  <td data-label="Scope">
                    <span class={key.scope === "admin" ? "badge warn" : "badge"}>{key.scope}</span>
                  </td>
                  <td class="mono" data-label="Workflows">{key.workflow ?? <span class="quiet">all</span>}</td>
                  <td class="nowrap" data-label="Created">
                    <Moment at={key.created_at} />
                  </td>
                  <td data-label="By">{key.by ?? <span class="none">–</span>}</td>
                  <td class="nowrap" data-label="Expires">{key.expires_at ? <Ago at={key.expires_at} /> : <span class="quiet">never</span>}</td>
                  <td class="right">
                    <button type="button" class="danger-quiet" aria-label={`Revoke ${key.name}`} onClick={() => setRevoked(key)}>
                      Revoke…
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {creates && (
        <CreateDialog
          first={keys.data.length === 0}
          done={async (key) => {
            created.value = key;
            if (!session.value?.name) await signIn(key.key);
            keys.refresh();
          }}
          close={() => setCreates(false)}
        />
      )}
      {revoked !== null && (
        <Dialog
          title={`Revoke the key ${revoked.name}?`}
          action="Revoke"
          danger
          command={{ method: "DELETE", path: `/keys/${part(revoked.name)}`, cli: `key revoke ${quoted(revoked.name)}` }}
          carryOut={async () => {
            await send(`/keys/${part(revoked.name)}`, { method: "DELETE" });
            keys.refresh();
          }}
          close={() => setRevoked(null)}
        >
          <p>Within a second, no process of the service lets it in any more.</p>
        </Dialog>
      )}
    </>
  );
}

const SCOPES = [
  ["read", "read: see everything"],
  ["operate", "operate: also start, cancel, retry, decide"],
  ["admin", "admin: also definitions, triggers, keys"],
] as const;

interface CreateProps {
  first: boolean;
  done: (key: CreatedKey) => Promise<void>;
  close: () => void;
}

function CreateDialog({ first, done, close }: CreateProps) {
  const [name, setName] = useState("");
  const [scope, setScope] = useState(first ? "admin" : "read");
  const [workflow, setWorkflow] = useState("");
  const [expires, setExpires] = useState(first ? "" : "90d");
  const body = { name, scope, ...(workflow && { workflow }), ...(expires && { expires }) };
  const options = `--scope ${scope}${workflow && ` --workflow ${quoted(workflow)}`}${expires && ` --expires ${quoted(expires)}`}`;
  return (
    <Dialog
      title="Create a key"
      action="Create"
      command={{ method: "POST", path: "/keys", body, cli: `key create ${quoted(name || "NAME")} ${options}` }}
      carryOut={async () => await done(await post<CreatedKey>("/keys", body))}
      close={close}
    >
      <label>
        Name <input required value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <label>
        Scope
        <select value={scope} onChange={(event) => setScope(event.currentTarget.value)}>
          {SCOPES.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      </label>
      <label>
        Workflows, as a pattern such as order-*; empty for all <input value={workflow} onInput={(event) => setWorkflow(event.currentTarget.value)} />
      </label>
      <label>
        Valid for, such as 90d; empty until it is revoked <input value={expires} onInput={(event) => setExpires(event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}
