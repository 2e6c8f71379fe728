"""A disk that takes no bytes: it is said everywhere, nothing that was acknowledged is lost, and the service goes on by
itself."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.e2e.conftest import StartService
from tests.support.file_limits import limit, limited
from tests.support.service import Service
from tests.support.waiting import until_true

DEFINITION = b'{"name":"w","steps":[{"id":"a","task":"nobodys"}]}'
FIRST_START_S_MAX = 5.0
NOTHING = 1000  # bytes; every file of the broker that something was stored in has more
LITTLE = 256 << 10  # the log of the test's service stays below it
INPUT = "x" * 100_000


class Asked:
    """What the service answers to plain requests."""

    def __init__(self, url: str) -> None:
        self.http = httpx2.Client(base_url=url, trust_env=False, timeout=20)

    def start(self, value: object = None) -> str | None:
        """The id of a new run; None: it was refused."""
        answer = self.http.post("/runs", json={"workflow": "w", "input": value})
        assert answer.status_code in (201, 503), answer.text
        return str(answer.json()["run_id"]) if answer.status_code == 201 else None

    def problems(self) -> tuple[str, str] | None:
        """What /health and /ready say; None: not both are 503."""
        try:
            answers = [self.http.get(path) for path in ("/health", "/ready")]
        except httpx2.TransportError:
            return None
        return (answers[0].text, answers[1].text) if [503, 503] == [one.status_code for one in answers] else None

    def has(self, run_id: str) -> bool:
        return self.http.get(f"/runs/{run_id}").status_code == 200


@pytest.fixture
def service(start_service: StartService) -> Service:
    return start_service(shards=1, http_workers=1)


@pytest.fixture
def asked(service: Service) -> Iterator[Asked]:
    asked = Asked(service.url)
    with asked.http:
        assert asked.http.post("/workflows", content=DEFINITION).status_code == 201
        yield asked


def told(service: Service, event: str) -> int:
    return sum(line["event"] == event for line in service.log_lines())


async def reason(asked: Asked) -> tuple[str, str]:
    """What both say as soon as both are 503."""
    found: list[tuple[str, str]] = []

    def look() -> bool:
        problems = asked.problems()
        if problems:
            found.append(problems)
        return bool(problems)

    await until_true(look)
    return found[0]


def seconds_until(start: Callable[[], str | None]) -> float:
    begin = time.monotonic()
    while start() is None:
        assert time.monotonic() - begin < 30
    return time.monotonic() - begin


async def test_a_broker_that_could_not_write_is_started_again_with_all_that_was_acknowledged(
    service: Service, asked: Asked
) -> None:
    runs = [asked.start() for _ in range(20)]
    broker = service.pids()["broker"]
    limit([broker], NOTHING)
    health, ready = await reason(asked)
    assert health.strip() in ready
    assert service.await_restart("broker", broker) != broker
    assert seconds_until(asked.start) < FIRST_START_S_MAX
    assert all(asked.has(run_id) for run_id in runs if run_id)
    await until_true(lambda: told(service, "storage_writable_again") == 1)
    assert [1, 0] == [told(service, event) for event in ("storage_not_writable", "process_died")]


async def test_while_there_is_no_room_changes_are_refused_and_runs_are_shown_and_then_all_goes_on(
    service: Service, asked: Asked
) -> None:
    acknowledged = [asked.start()]
    with limited(
        [service.pids()["broker"], service.pid], LITTLE
    ):  # a broker that is started by the supervisor has the limit, too
        while run_id := asked.start(INPUT):
            acknowledged.append(run_id)
        await until_true(lambda: told(service, "storage_not_writable") == 1)
        health, ready = await reason(asked)
        assert "file too large" in health
        assert health.strip() in ready
        begin = time.monotonic()
        refused = asked.http.post("/runs", json={"workflow": "w"})
        assert (503, True) == (refused.status_code, refused.text.strip().endswith("nothing was done"))
        assert time.monotonic() - begin < 1
        assert asked.has(acknowledged[-1] or "")
    assert seconds_until(asked.start) < FIRST_START_S_MAX
    assert all(asked.has(run_id) for run_id in acknowledged if run_id)
    assert [1, 0] == [told(service, event) for event in ("storage_not_writable", "process_died")]
    service.await_ready()


async def test_a_removed_data_directory_is_reported_as_an_error_and_the_service_starts_again_empty(
    service: Service, asked: Asked
) -> None:
    lost = asked.start() or ""
    former = service.pids()
    shutil.rmtree(service.directory / "data")
    health, ready = await reason(asked)
    assert "was removed: all that was stored in it is lost" in health
    assert health.strip() in ready
    assert asked.start() is None  # nothing is taken that would be lost, too
    for name, pid in former.items():
        service.await_restart(name, pid)
    service.await_ready()
    assert [1, 1] == [told(service, event) for event in ("storage_not_writable", "data_lost")]
    assert not asked.has(lost)
    assert asked.http.post("/workflows", content=DEFINITION).status_code == 201
    assert asked.has(asked.start() or "")


async def test_a_data_directory_that_is_put_back_at_once_loses_nothing(
    service: Service, asked: Asked, tmp_path: Path
) -> None:
    kept, former = asked.start() or "", service.pids()
    data, aside = service.directory / "data", tmp_path / "aside"
    data.rename(aside)
    await reason(asked)
    shutil.rmtree(data, ignore_errors=True)  # whatever was made there meanwhile
    aside.rename(data)
    await until_true(lambda: told(service, "storage_writable_again") == 1)
    assert asked.has(kept)
    assert asked.start()
    assert former == service.pids()
