"""What docs/waiting.md shows is what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from penstock.engine.waiting.reasons import Reason
from tests.support.service import Service
from tests.support.waiting import until

PAGE = (Path(__file__).parents[2] / "docs" / "waiting.md").read_text()
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")


async def test_the_page_shows_what_explain_prints(service: Service) -> None:
    (definition,) = re.findall(r"```json\n(\{\n.*?\n\})\n```", PAGE, re.DOTALL)
    command, shown = re.findall(r"\$ (penstock run explain) (?:\w+)\n(.*?)```", PAGE, re.DOTALL)[0]
    with service.client() as client:
        client.register(definition.encode())
        run_id = client.start(orjson.loads(definition)["name"]).run_id

        async def waits() -> bool:
            return any(one.reason is Reason.NO_WORKER for one in client.explain(run_id).waiting)

        await until(waits)
    printed = service.penstock(*command.split()[1:], run_id[:20]).stdout
    assert TIME.sub("", shown).split()[1:] == TIME.sub("", printed).split()[1:]


def test_the_page_on_the_doctor_shows_what_it_prints(service: Service) -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    shown = re.findall(r"\$ penstock doctor\n(.*?)```", page, re.DOTALL)[0]
    printed = service.penstock("doctor", "--ignore", "disk").stdout
    assert shown.replace("ok      disk", "") == re.sub(
        r"(ok|ignored) +disk", "", re.sub(r"\ndisk: .*\n .*\n", "", printed)
    )


def test_the_page_names_every_reason() -> None:
    assert [] == [reason for reason in Reason if f"`{reason}`" not in PAGE]
