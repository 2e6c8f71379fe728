"""The examples of conditions, compensation, sleeps and maps in docs/workflows.md do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import orjson

from penstock.engine.run.commands import SetTimer
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.state import RunStatus, StepStatus
from penstock.engine.times import rfc3339
from penstock.engine.validation import parse
from tests.engine.build import DIGEST, RUN_ID, Play, dispatched, inputs, only, value

PAGE = Path(__file__).parents[2] / "docs" / "workflows.md"


def play_of(section: str) -> Play:
    """A run of the definition that the page has in this section."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = re.search(r"```json\n(.*?)\n```", text, re.DOTALL)
    assert found is not None
    return Play(compile_workflow(parse(orjson.loads(found[1])), DIGEST))


def test_a_refund_that_is_due_is_paid_back_with_what_the_templates_give() -> None:
    play = play_of("Conditions")
    play.start({"account": "DE12"})

    commands = play.carry_out(play.complete("check", {"due": 7.5}))

    assert inputs(commands) == {"pay-back": {"account": "DE12", "amount": 7.5, "text": f"Refund of run {RUN_ID}"}}
    assert dispatched(play.carry_out(play.complete("pay-back"))) == [("tell", 1)]


def test_a_refund_that_is_not_due_is_skipped_and_nobody_is_mailed() -> None:
    play = play_of("Conditions")
    play.start({"account": "DE12"})

    play.carry_out(play.complete("check", {"due": 0}))

    assert play.statuses() == {"check": "completed", "pay-back": "skipped", "tell": "skipped"}
    assert play.run.status is RunStatus.COMPLETED


def test_an_order_that_cannot_be_shipped_is_released_and_refunded() -> None:
    play = play_of("Compensation")
    play.start({"order": 7})
    play.carry_out(play.complete("charge", {"payment": "p-1"}))
    play.carry_out(play.complete("reserve", {"shelf": 3}))

    commands = play.carry_out(play.fail("ship"))

    assert inputs(commands) == {"reserve.compensate": {"input": {"payment": "p-1"}, "output": {"shelf": 3}}}
    assert inputs(play.carry_out(play.complete("reserve.compensate"))) == {"charge.compensate": {"payment": "p-1"}}
    assert play.run.status is RunStatus.COMPENSATING
    play.carry_out(play.complete("charge.compensate"))
    assert play.run.status is RunStatus.FAILED


def test_a_trial_sleeps_for_two_weeks_and_then_until_its_last_day() -> None:
    play = play_of("Sleeps")
    ends = play.now + 20 * 86_400
    play.start({"ends_at": rfc3339(ends)})

    [first] = only(SetTimer, play.carry_out(play.complete("welcome")))
    assert first.due == play.now + 14 * 86_400
    assert dispatched(play.fire("sleep.two-weeks", "two-weeks", 1, after=14 * 86_400)) == [("remind", 1)]
    [second] = only(SetTimer, play.carry_out(play.complete("remind")))
    assert second.due == ends


def test_thumbnails_are_made_for_each_image_and_failures_are_listed() -> None:
    play = play_of("Maps")
    play.start()

    commands = play.carry_out(play.complete("list", {"images": ["a.png", "b.png"]}))
    assert inputs(commands)["each.1"] == {"image": "b.png", "number": 1}
    play.fail("each.0", kind="non_retriable", error="no image")
    commands = play.carry_out(play.complete("each.1", {"size": 3}))

    given = [{"ok": False, "error": "no image"}, {"ok": True, "output": {"size": 3}}]
    assert inputs(commands) == {"gallery": given}
    assert play.step("each").status is StepStatus.COMPLETED
    assert value(play.step("each").output) == given
