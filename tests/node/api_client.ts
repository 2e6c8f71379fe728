// A client of types that openapi-typescript makes of the service's document: every call is checked by tsc, then made.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Definition = components["schemas"]["WorkflowDef"];

const [url, apiToken, bridgeToken] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${apiToken}` } });
const bridge = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${bridgeToken}` } });

function told<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  if (answer.data === undefined) throw new Error(`${answer.response.url}: ${answer.response.status} ${JSON.stringify(answer.error)}`);
  return answer.data;
}

const task = "node.hello";
const definition: Definition = { name: "from-node", steps: [{ id: "hello", task }] };
told(await api.POST("/workflows", { body: definition }));
const { run_id } = told(await api.POST("/runs", { body: { workflow: "from-node", input: "Ada" } }));
const many = told(await api.POST("/runs/bulk", { body: { workflow_id: "from-node", inputs: ["Grace"] } }));
told(await api.POST("/runs/cancel", { body: { workflow_id: "from-node", dry_run: true } }));
told(await api.POST("/triggers", { body: { name: "node-nightly", workflow: "from-node", cron: { expression: "0 3 * * *" } } }));
told(
  await api.POST("/runs/{run_id}/signal/{name}", {
    params: { path: { run_id, name: "paid" } },
    body: "12",
    bodySerializer: (body) => body,
    parseAs: "json",
  }),
);

let answered = 0;
while (answered < 1 + many.total) {
  for (const polled of told(await bridge.POST("/v1/tasks/poll", { body: { task_types: [task], max_tasks: 10, timeout_ms: 5000 } }))) {
    const body = { action: "complete" as const, output: `Hello, ${polled.input}!` };
    told(await bridge.POST("/v1/tasks/{task_id}/resolve", { params: { path: { task_id: polled.task_id } }, body }));
    answered += 1;
  }
}
const run = told(await api.GET("/runs/{run_id}", { params: { path: { run_id }, query: { wait_ms: 10000 } } }));
const listed = told(await api.GET("/runs", { params: { query: { workflow: "from-node" } } }));
const refused = await api.POST("/runs", { body: { workflow: "unknown" }, parseAs: "text" });
console.log(
  JSON.stringify({
    status: run.status,
    output: run.steps.hello?.output,
    created: new Date(run.created_at).getTime() > 0,
    listed: listed.length,
    refused: refused.response.status,
  }),
);
