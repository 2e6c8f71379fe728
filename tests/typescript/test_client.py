"""The TypeScript client against the whole service."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.client import Client
from tests.support.service import Service, free_port
from tests.typescript.conftest import PAGES, Packed
from tests.typescript.lossy import losing_answers

NAP = b'{"name": "nap", "steps": [{"id": "rest", "type": "sleep", "config": {"duration": "1ms"}}]}'
CONSENT = b'{"name": "consent", "steps": [{"id": "ask", "type": "approval", "config": {"timeout": "1h"}}]}'


def test_a_run_is_started_listed_followed_decided_and_cancelled(packed: Packed, shared: Service) -> None:
    said = json.loads(packed.run("lifecycle", shared.url))

    assert ["ask", "approved", "ann"] == said["approval"]
    assert ["ConflictError", 409] == said["twice"][:2]
    assert said["same"]
    assert ["workflow.started", "workflow.completed"] == [said["events"][0], said["events"][-1]]
    assert said["ascending"]
    assert (4, 2, 2) == (said["listed"], said["two"], said["paged"])
    assert ("paper", True) == (said["sent"], said["paused"])
    assert ["RunFailedError", None, ["changed my mind"]] == said["cancelled"]
    assert ["completed", 200, "null"] == said["called"]
    assert ["NotFoundError", 404] == said["unknown"][:2]
    assert ["InvalidError", 400] == said["invalid"][:2]
    assert ["NotFoundError", 400] == said["wrongWorkflow"][:2]


def test_events_go_on_where_they_were_when_the_service_was_killed(packed: Packed, shared: Service) -> None:
    with shared.client() as client:
        client.register(CONSENT)
        run_id = client.start("consent").run_id
        program = packed.start("follow", shared.url, run_id)
        assert program.stdout is not None
        try:
            before = [program.stdout.readline().split() for _ in range(2)]
            shared.kill_all()
            shared.start()
            client.decide_by_right(run_id, "ask", "approve", approved_by="ann")
            rest, err = program.communicate(timeout=60)
        finally:
            program.kill()
        expected = [[str(event.seq), event.type] for event in client.events(run_id)]

    *after, output = [line.split() for line in rest.splitlines()]
    assert expected == before + after, err
    assert "ann" == json.loads("".join(output))["approved_by"]
    assert 0 == program.returncode


@pytest.mark.parametrize("losses", [0, 2])
async def test_a_start_whose_answer_was_lost_is_sent_again_and_starts_one_run(
    packed: Packed, shared: Service, losses: int
) -> None:
    with shared.client() as client:
        client.register(NAP)
        known = {run.run_id for run in client.runs(workflow="nap")}
        async with losing_answers(shared, losses) as (url, requests):
            said = await asyncio.to_thread(packed.run, "start", url)
        started = {run.run_id for run in client.runs(workflow="nap")} - known

    run_id, signalled = said.splitlines()
    assert {run_id} == started
    assert "no such run" == signalled
    assert losses + 2 == len(requests)


async def test_what_has_no_key_is_not_sent_twice_and_the_outcome_is_unknown(packed: Packed, shared: Service) -> None:
    async with losing_answers(shared, 1) as (url, requests):
        said = await asyncio.to_thread(packed.run, "start", url, "5", "signal")

    assert "unavailable" == said.strip()
    assert 1 == len(requests)


def test_nobody_at_the_address_is_told_apart(packed: Packed) -> None:
    assert "unreachable" == packed.run("start", f"http://127.0.0.1:{free_port()}", "1").strip()


def test_client_waits_for_a_service_that_starts(packed: Packed, shared: Service) -> None:
    with Client(shared.url) as client:
        client.register(NAP)
    shared.kill_all()
    program = packed.start("start", shared.url, "60")
    shared.start()
    out, err = program.communicate(timeout=60)

    assert "no such run" == out.splitlines()[-1], err


def test_the_example_of_the_page_prints_what_it_says(packed: Packed, shared: Service) -> None:
    shown = PAGES["page"].read_text().partition("```text\n")[2].partition("```")[0]

    assert shown == packed.run("page_0", SERVICE_URL=shared.url)
