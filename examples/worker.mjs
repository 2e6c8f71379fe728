// A worker in Node 18 or newer, without packages: it greets by name, over the worker bridge.
//   SERVICE_URL=http://localhost:8080 SERVICE_BRIDGE_TOKEN=... node examples/worker.mjs [TASK_TYPE]
const url = process.env.SERVICE_URL ?? 'http://localhost:8080';
const id = `node-${process.pid}`, types = [process.argv[2] ?? 'hello'];
const headers = { Authorization: `Bearer ${process.env.SERVICE_BRIDGE_TOKEN}` };
const call = (path, body) => fetch(`${url}/v1/${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function greet({ input }) {
  if (typeof input !== 'string') throw new Error('the input is no name');
  return { greeting: `Hello, ${input}!` };
}

async function carryOut(task) {
  const alive = setInterval(() => call(`tasks/${task.task_id}/resolve`, { action: 'heartbeat' }).catch(() => {}), 60_000);
  const failed = (error) => ({ action: 'fail', error: String(error) });
  const answer = await greet(task).then((output) => ({ action: 'complete', output }), failed);
  clearInterval(alive);
  for (;; await pause(1000)) { // until the service has it; 404 says that it had it, or that the task is someone else's by now
    const { status } = await call(`tasks/${task.task_id}/resolve`, answer).catch(() => ({ status: 503 }));
    if (status < 500) return;
  }
}

async function stayConnected() { // registered for as long as the stream of heartbeats lives
  const me = { worker_id: id, task_types: types, max_tasks: 10, language: 'javascript' };
  for (;; await pause(1000)) await call('workers/connect', me).then((answer) => answer.text()).catch(() => {});
}

stayConnected();
for (;;) {
  const poll = { task_types: types, max_tasks: 10, timeout_ms: 20_000, worker_id: id };
  const answer = await call('tasks/poll', poll).catch(() => ({ ok: false }));
  if (answer.ok) (await answer.json()).forEach(carryOut);
  else await pause(1000);
}
