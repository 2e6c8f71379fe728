"""Workflows in Python against the whole service: a worker registers them, serves their functions with the types that
these name, and the example of docs/python.md does what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from penstock.client.views import RunView
from penstock.engine.errors import NotFound
from tests.e2e.conftest import StartService
from tests.support.service import Service
from tests.support.waiting import until_found

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
EXAMPLE = re.compile(r"```python\n# order\.py\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"```console\n\$ (penstock .*?)\n(.*?)```", re.DOTALL)
TOKEN = "a-token-of-the-bridge-of-this-test"
TYPED = """
from dataclasses import dataclass
from typing import TypedDict

import msgspec
import pydantic

from penstock import Workflow, task
from penstock.worker import Worker


@dataclass
class Order:
    id: str
    lines: list[int]


class Receipt(msgspec.Struct):
    id: str
    total: int = msgspec.field(name="sum")


class Note(pydantic.BaseModel):
    to: str = pydantic.Field(alias="recipient")
    total: int


class Sent(TypedDict):
    to: str
    sum: int


@task(retries=3)
def charge(order: Order) -> Receipt:
    return Receipt(order.id, sum(order.lines))


@task("write")
async def write(receipt: Receipt) -> Note:
    return Note(recipient=f"buyer of {receipt.id}", total=receipt.total)


@task
def deliver(note: Note, ctx: object) -> Sent:
    return {"to": note.to, "sum": note.total}


flow = Workflow("typed")
paid = flow.step(charge, input=flow.input)
written = flow.step(write, input=paid)
flow.step(deliver, input=written, when=paid.output.total > 5)

broken = Workflow("broken")
broken.step(deliver, input={"recipient": "ada", "total": "many"}, retries=5)

if __name__ == "__main__":
    Worker(workflows=[flow, broken], transport=TRANSPORT).run()
"""


@contextmanager
def working(service: Service, path: Path) -> Iterator[None]:
    worker = subprocess.Popen([sys.executable, str(path)], env={**service.environ, "SERVICE_BRIDGE_TOKEN": TOKEN})
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


def registered(service: Service, name: str) -> bool:
    with service.client() as client:
        try:
            return client.workflow(name).name == name
        except NotFound:
            return False


def ended(service: Service, workflow: str, given: object) -> RunView:
    """The run, when it has ended."""
    with service.client() as client:
        run_id = client.start(workflow, orjson.dumps(given)).run_id
        found: RunView | None = until_found(lambda: run if (run := client.get_run(run_id)).ended else None)
        assert found is not None
        return found


@pytest.mark.parametrize("transport", ["nats", "bridge"])
def test_a_worker_registers_its_workflows_and_converts_their_types(
    start_service: StartService, tmp_path: Path, transport: str
) -> None:
    service = start_service(shards=1, http_workers=1, bridge_token=TOKEN)
    path = tmp_path / "typed.py"
    path.write_text(TYPED.replace("TRANSPORT", repr(transport)))
    with working(service, path):
        until_found(lambda: registered(service, "broken"))

        with service.client() as client:
            done = client.call("typed", b'{"id": "o-1", "lines": [2, 5]}')
        wrong = ended(service, "typed", {"id": 7, "lines": []})
        other = ended(service, "broken", None)

    assert ("completed", {"to": "buyer of o-1", "sum": 7}) == (done.outcome, orjson.loads(done.body))
    assert "failed" == wrong.status
    assert 'the input of task "charge" is wrong: Expected `str`, got `int` - at `$.id`' in str(wrong.error)
    assert "failed" == other.status
    assert "valid integer" in str(other.error)
    assert "at `$.total`" in str(other.error)
    assert [1, 1] == [next(iter(run.steps.values())).attempts for run in (wrong, other)]


def test_the_example_of_the_page_does_what_the_page_says(service: Service, tmp_path: Path) -> None:
    text = PAGE.read_text()
    found, commands = EXAMPLE.search(text), COMMAND.findall(text)
    assert found is not None
    path = tmp_path / "order.py"
    path.write_text(found[1])
    assert len(commands) >= 3

    with working(service, path):
        until_found(lambda: registered(service, "order"))
        for command, printed in commands:
            ran = subprocess.run(
                [Path(sys.executable).with_name("penstock"), *shlex.split(command)[1:]],
                cwd=tmp_path,
                env=service.environ,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert printed == ran.stdout, (command, ran.stderr)
