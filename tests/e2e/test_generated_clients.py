"""Clients that other people's generators make of the API's document: they are typed, compile, and do a run from end to
end."""

from __future__ import annotations

import importlib
import io
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Service
from tests.support.tools import NODE, NODE_FOLDER

API_TOKEN, BRIDGE_TOKEN = "api-s3cret", "br1dge-s3cret"
NODE_TESTS = Path(__file__).parents[1] / "node"
TSC = [
    "--strict",
    "--target",
    "es2022",
    "--module",
    "nodenext",
    "--moduleResolution",
    "nodenext",
    "--lib",
    "es2022,dom",
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    tokens = {"SERVICE_API_TOKEN": API_TOKEN, "SERVICE_BRIDGE_TOKEN": BRIDGE_TOKEN}
    with Service(tmp_path_factory.mktemp("service"), tokens, shards=1, http_workers=1) as started:
        yield started


@pytest.fixture(scope="module")
def document(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("document") / "openapi.json"
    with urllib.request.urlopen(f"{service.url}/openapi.json") as answer:
        path.write_bytes(answer.read())
    return path


def checked(*command: str | Path, cwd: Path | None = None) -> str:
    ran = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert 0 == ran.returncode, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def python_client(document: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that the generated package `penstock_client` stands in."""
    folder = tmp_path_factory.mktemp("python")
    (folder / "config.yml").write_text("post_hooks: []\n")
    program = Path(sys.executable).with_name("openapi-python-client")
    said = checked(
        program,
        "generate",
        "--path",
        document,
        "--output-path",
        folder / "client",
        "--config",
        folder / "config.yml",
        "--fail-on-warning",
    )
    assert "Warning" not in said
    sys.path.insert(0, str(folder / "client"))
    yield folder / "client"
    sys.path.remove(str(folder / "client"))


def test_a_generated_python_client_does_a_run(service: Service, python_client: Path) -> None:
    def operation(tag: str, name: str) -> Any:
        return importlib.import_module(f"penstock_client.api.{tag}.{name}")

    package, models, types = (importlib.import_module(f"penstock_client{name}") for name in ("", ".models", ".types"))
    api = package.AuthenticatedClient(base_url=service.url, token=API_TOKEN)
    bridge = package.AuthenticatedClient(base_url=service.url, token=BRIDGE_TOKEN)
    step = models.NormalStep(id="hello", task="python.hello")

    definition = models.WorkflowDef(name="from-python", steps=[step])
    assert "registered" == operation("workflows", "register_workflow").sync(client=api, body=definition).status
    started = operation("runs", "start_run").sync(
        client=api, body=models.StartRun(workflow="from-python", input_="Ada")
    )
    signal = types.File(payload=io.BytesIO(b'{"amount": 12}'))
    sent = operation("runs", "send_signal").sync(run_id=started.run_id, name="paid", client=api, body=signal)
    cron = models.TriggerDocument.from_dict(
        {"name": "python-nightly", "workflow": "from-python", "cron": {"expression": "0 3 * * *"}}
    )
    trigger = operation("triggers", "create_trigger").sync(client=api, body=cron)
    [task] = operation("worker_bridge", "poll_tasks").sync(
        client=bridge, body=models.PollTasks(task_types=["python.hello"], max_tasks=1, timeout_ms=20_000)
    )
    done = models.ResolveTask(action=models.ResolveTaskAction.COMPLETE, output=f"Hello, {task.input_}!")
    operation("worker_bridge", "resolve_task").sync(task_id=task.task_id, client=bridge, body=done)
    run = operation("runs", "get_run").sync(run_id=started.run_id, client=api, wait_ms=20_000)

    assert ("sent", "paid", "completed", "Hello, Ada!") == (
        sent.status,
        sent.signal,
        run.status,
        run.steps["hello"].output,
    )
    assert "0 3 * * *" == trigger.cron.expression
    assert run.created_at.tzinfo is not None
    assert run.created_at <= run.steps["hello"].started_at
    listed = operation("runs", "list_runs").sync(client=api, workflow="from-python")
    assert [started.run_id] == [one.run_id for one in listed]
    events = operation("runs", "get_events").sync(run_id=started.run_id, client=api)
    assert {"workflow.started", "step.completed", "workflow.completed"} <= {event.type_ for event in events}


def test_generated_typescript_types_compile_in_a_client_that_does_a_run(service: Service, document: Path) -> None:
    """Beside the packages, where Node looks for them."""
    folder, modules = NODE_FOLDER / f"client-{document.parent.parent.name}", NODE_FOLDER / "node_modules"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "package.json").write_text('{"type": "module"}')
    shutil.copy(NODE_TESTS / "api_client.ts", folder)
    (folder / "node.d.ts").write_text("declare const process: { argv: string[] };\n")
    try:
        checked(NODE, modules / "openapi-typescript" / "bin" / "cli.js", document, "-o", folder / "api.ts")
        checked(NODE, modules / "typescript" / "bin" / "tsc", *TSC, "api_client.ts", "node.d.ts", cwd=folder)
        said = checked(NODE, folder / "api_client.js", service.url, API_TOKEN, BRIDGE_TOKEN)
    finally:
        shutil.rmtree(folder)

    assert {"status": "completed", "output": "Hello, Ada!", "created": True, "listed": 2, "refused": 400} == json.loads(
        said
    )
