#!/usr/bin/env bash
# A worker in the shell: it greets by name, over the worker bridge. Needs bash and curl.
#   SERVICE_URL=http://localhost:8080 SERVICE_BRIDGE_TOKEN=... examples/worker.sh [TASK_TYPE]
set -euo pipefail
task=${1:-hello} api=${SERVICE_URL:-http://localhost:8080}/v1 id=shell-$$
post=(curl --silent --show-error --fail-with-body --noproxy localhost,127.0.0.1 -H "Authorization: Bearer $SERVICE_BRIDGE_TOKEN")

stay_connected() { # registered for as long as this stream of heartbeats is open; what breaks is opened again
  trap 'kill $stream 2>/dev/null; exit' TERM
  while true; do
    "${post[@]}" "$api/workers/connect" -d '{"worker_id": "'"$id"'", "task_types": ["'"$task"'"], "language": "shell"}' >/dev/null &
    stream=$!
    wait $stream || true
    sleep 1
  done
}
stay_connected &
trap 'kill $! 2>/dev/null || true' EXIT
trap 'exit 0' INT TERM

while true; do
  poll='{"task_types": ["'"$task"'"], "max_tasks": 1, "timeout_ms": 5000, "worker_id": "'"$id"'"}'
  polled=$("${post[@]}" "$api/tasks/poll" -d "$poll") || { sleep 1; continue; }
  # Takes one task at a time, whose input is a string: a pattern is enough to read this JSON.
  [[ $polled =~ \"task_id\":\"([^\"]*)\" ]] || continue
  task_id=${BASH_REMATCH[1]}
  if [[ $polled =~ \"input\":\"(([^\"\\]|\\.)*)\" ]]; then
    answer='{"action": "complete", "output": {"greeting": "Hello, '"${BASH_REMATCH[1]}"'!"}}'
  else
    answer='{"action": "fail", "error": "the input is no name", "failure_type": "non_retriable"}'
  fi
  # Repeats while the service is down. 404 means that the service has the answer already, or that another worker has the task now.
  "${post[@]}" "$api/tasks/$task_id/resolve" -d "$answer" --retry 1000 --retry-delay 1 --retry-connrefused >/dev/null || true
done
