// A worker in Node 18 or newer, without packages: it greets by name, over the worker bridge.
//   SERVICE_URL=http://localhost:8080 SERVICE_BRIDGE_TOKEN=... node examples/worker.mjs [TASK_TYPE]
const url = process.env.SERVICE_URL ?? 'http://localhost:8080';
const id = `node-${process.pid}`, types = [process.argv[2] ?? 'hello'];
const headers = { Authorization: `Bearer ${process.env.SERVICE_BRIDGE_TOKEN}` };
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const lost = (error) => new Response(String(error.cause ?? error), { status: 503 });

async function call(path, body) {
  const answer = await fetch(`${url}/v1/${path}`, { method: 'POST', headers, body: JSON.stringify(body) }).catch(lost);
  if (!answer.ok) console.error(`${path}: ${answer.status} ${(await answer.text()).trim()}`);
  return answer;
}

async function greet({ input }) {
  if (typeof input !== 'string') throw new Error('the input is no name');
  return { greeting: `Hello, ${input}!` };
}

// Sends an answer until the service has it. 404 means that the service has it already, or that another worker has the task now.
async function carryOut(task) {
  const path = `tasks/${task.task_id}/resolve`, failed = (error) => ({ action: 'fail', error: String(error) });
  const alive = setInterval(() => call(path, { action: 'heartbeat' }), 10_000); // more than 30 s apart, a restart may lose the task
  const answer = await greet(task).then((output) => ({ action: 'complete', output }), failed);
  clearInterval(alive);
  while ((await call(path, answer)).status >= 500) await pause(1000);
}

async function stayConnected() { // registered for as long as the stream of heartbeats lives
  const me = { worker_id: id, task_types: types, max_tasks: 10, language: 'javascript' };
  for (;; await pause(1000)) await call('workers/connect', me).then((answer) => answer.ok && answer.text()).catch(() => {});
}

stayConnected();
for (;;) {
  const answer = await call('tasks/poll', { task_types: types, max_tasks: 10, timeout_ms: 20_000, worker_id: id });
  await (answer.ok ? answer.json().then((tasks) => tasks.forEach(carryOut)) : pause(1000));
}
