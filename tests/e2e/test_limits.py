"""Limits of a whole service: runs that really wait, what `penstock limit` and /limits say of them, and overrides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import httpx2
import orjson
import pytest

from penstock.cli.terminal.session import REFUSED
from penstock.client import Client
from penstock.client.limits.views import LimitView
from penstock.engine.waiting.reasons import Reason, WaitingReason
from tests.e2e.conftest import StartService
from tests.support.service import Service
from tests.support.waiting import until_found

pytestmark = pytest.mark.timeout(180)

ACME = {"tenant": "acme"}
APPROVAL = {"id": "wait", "type": "approval"}  # so that a run goes on until it is cancelled, without a worker


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("limits"), shards=2, http_workers=1) as started:
        yield started


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with service.client() as opened:
        yield opened


def registered(client: Client, *limits: dict[str, object]) -> str:
    """A new workflow with these limits of its runs."""
    name = f"w{uuid4().hex}"
    client.register(orjson.dumps({"name": name, "concurrency": limits, "steps": [APPROVAL]}))
    return name


def begin(client: Client, name: str) -> str:
    return client.start(name, orjson.dumps(ACME)).run_id


def seen(client: Client, name: str, fits: Callable[[LimitView], bool], key: str | None = "acme") -> LimitView:
    """The limit, as soon as it fits."""

    def look() -> LimitView | None:
        found = client.limit(name, key=key)
        return found if fits(found) else None

    found = until_found(look)
    assert found is not None
    return found


def three(client: Client, name: str) -> list[str]:
    """One run that holds the slot, and two that wait for it, in this order."""
    run_ids = []
    for waiting in range(3):
        run_ids.append(begin(client, name))
        seen(client, name, lambda one, count=waiting: (one.holders_total, one.waiting_total) == (1, count))  # type: ignore[misc]
    return run_ids


def begun(client: Client, run_id: str) -> bool:
    return until_found(lambda: client.get_run(run_id).status == "running")


def test_lists_answer_from_the_first_moment_on(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    with service.client() as client, httpx2.Client(base_url=service.url, trust_env=False, timeout=30) as http:

        def answered() -> list[dict[str, object]]:
            answer = http.get("/limits")
            assert 200 == answer.status_code, answer.text
            return list(answer.json())

        assert [] == answered()
        name = registered(client, {"limit": 1})
        assert [(name, 0)] == [(one["scope"], one["holders_total"]) for one in answered()]
        begin(client, name)
        until_found(lambda: [1] == [one["holders_total"] for one in answered()])


def test_who_holds_and_who_waits_is_shown(service: Service, client: Client) -> None:
    name = registered(client, {"limit": 1, "key": "input.tenant"})
    first, second, third = three(client, name)
    shown = orjson.loads(service.penstock("limit", "show", name, "--key", "acme", "--json").stdout)
    assert [first] == [one["run_id"] for one in shown["holders"]]
    assert [(1, second), (2, third)] == [(one["place"], one["run_id"]) for one in shown["waiting"]]
    text = service.penstock("limit", "show", name, "--key", "acme").stdout
    assert text.index(first) < text.index("waiting\nPLACE") < text.index(second) < text.index(third)
    whole = client.limit(name)
    assert [("acme", 1, 2)] == [(one.key, one.holders_total, one.waiting_total) for one in whole.keys]
    lines = service.penstock("limit", "list").stdout.splitlines()
    assert [name, "runs", "acme", "1", "1", "2", "-"] == next(line.split() for line in lines if name in line)


def test_why_a_run_waits_names_limit_key_place_and_holder(service: Service, client: Client) -> None:
    name = registered(client, {"limit": 1, "key": "input.tenant"})
    first, _, third = three(client, name)

    def look() -> WaitingReason | None:
        return next((one for one in client.explain(third).waiting if one.reason is Reason.CONCURRENCY), None)

    found = until_found(look)
    assert found is not None
    assert {"scope": name, "limit": 1, "key": "acme", "holders": 1, "place": 2, "held_by": first} == found.details
    text = service.penstock("run", "explain", third).stdout
    for said in (f'limit "{name}" (1 run at a time, key "acme")', "1 goes on", first, "place 2 of 2 that wait"):
        assert said in " ".join(text.split())


def test_an_override_lets_waiting_runs_begin_until_it_is_reset(service: Service, client: Client) -> None:
    name = registered(client, {"limit": 1, "key": "input.tenant"})
    first, second, third = three(client, name)
    said = service.penstock("limit", "set", name, "2", "--key", "acme").stdout
    assert f"{name} key acme allows 2 (overridden)\n" == said
    assert begun(client, second)
    found = seen(client, name, lambda one: one.holders_total == 2)
    assert [third] == [one.run_id for one in found.waiting]
    said = service.penstock("limit", "reset", name, "--key", "acme").stdout
    assert f"{name} key acme allows 1 (as registered)\n" == said
    client.cancel(first)
    found = seen(client, name, lambda one: one.holders_total == 1)
    assert ([second], [third]) == ([one.run_id for one in found.holders], [one.run_id for one in found.waiting])
    assert "pending" == client.get_run(third).status  # one goes on, and one is allowed
    client.cancel(second)
    assert begun(client, third)
    refused = service.penstock("limit", "reset", name, "--key", "acme")
    assert (REFUSED, True) == (refused.returncode, "is not overridden" in refused.stderr)


def test_metrics_have_who_holds_and_who_waits(service: Service, client: Client) -> None:
    name = registered(client, {"limit": 1, "key": "input.tenant"})
    three(client, name)
    figure = re.compile(rf'^penstock_limit_(\w+)\{{[^}}]*kind="runs",[^}}]*scope="{name}"\}} ([0-9.]+)$', re.M)

    def scraped() -> tuple[list[tuple[str, str]], str]:
        """The figures, and the whole page; a process that answers too late is not on it."""
        page = httpx2.get(f"{service.url}/metrics", trust_env=False).text
        return sorted(figure.findall(page)), page

    found, page = until_found(lambda: one if (one := scraped())[0] else None) or ([], "")
    assert [("holders", "1.0"), ("waiting", "2.0")] == found
    assert re.search(r'^penstock_limit_decisions_total\{[^}]*kind="runs",[^}]*\} [1-9]', page, re.M)


def test_the_doctor_finds_limits_that_hold_up_runs(service: Service, client: Client) -> None:
    stopped, held = registered(client, {"limit": 0}), registered(client, {"limit": 1, "key": "input.tenant"})
    waiting = begin(client, stopped)
    seen(client, stopped, lambda one: one.waiting_total == 1, key=None)
    first, *others = three(client, held)

    def said() -> str:
        found = client.doctor().findings
        return "\n".join(f"{one.text}: {one.remedy}" for one in found if one.check == "limits")

    assert (True, False) == (stopped in said(), held in said())
    assert f'the limit "{stopped}" (runs) lets nothing begin, and 1 waits for it: `penstock limit set' in said()
    client.pause(first)
    until_found(lambda: held in said())
    assert f'the limit "{held}" (runs, key "acme") has slots that paused runs hold ({first}), and 2 wait' in said()
    examined = service.penstock("doctor", "--ignore", "disk")
    assert (REFUSED, True) == (examined.returncode, "penstock run resume RUN" in " ".join(examined.stdout.split()))
    client.resume(first)
    until_found(lambda: held not in said())
    for run_id in (waiting, *others, first):
        client.cancel(run_id)
    until_found(lambda: not said())


def test_a_limit_that_is_set_to_nothing_lets_nothing_begin_until_it_is_reset(service: Service, client: Client) -> None:
    name = registered(client, {"limit": 1})
    service.penstock("limit", "set", name, "0")
    run_id = begin(client, name)
    found = seen(client, name, lambda one: one.waiting_total == 1, key=None)
    assert (0, [], [run_id]) == (found.limit, found.holders, [one.run_id for one in found.waiting])
    service.penstock("limit", "reset", name)
    assert begun(client, run_id)
