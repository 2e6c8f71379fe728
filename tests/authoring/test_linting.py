"""The linter says what is probably not meant, and is silent about what is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.authoring import Workflow, and_, task
from penstock.authoring.linting import LintFinding


@task
def silent(value: object) -> None: ...


@task
def speaking(value: object) -> str:
    return str(value)


def found(build: Callable[[Workflow[Any]], Any], **options: Any) -> list[LintFinding]:
    flow: Workflow[Any] = Workflow("w", **options)
    build(flow)
    return flow.lint()


@pytest.mark.parametrize(
    ("build", "step", "what"),
    [
        (lambda flow: flow.step("a", when="1 > 2"), "a", "never carried out"),
        (lambda flow: flow.step("a", when=False), "a", "never carried out"),
        (lambda flow: flow.step("b", when=flow.step("a").status == "failed"), "b", "never carried out"),
        (lambda flow: flow.map("a", items=[]), "a", "no elements"),
        (lambda flow: flow.step("b", after=flow.step("a"), input=1), "a", "nobody reads its output"),
        (lambda flow: flow.step("b", after=flow.step(speaking), input=1), "speaking", "nobody reads its output"),
        (lambda flow: flow.step("charge-card", retries=1), "charge-card", '"charge-card" is retried'),
        (lambda flow: flow.step("sendMail", retries=1, input={"to": "ada"}), "sendMail", '"sendMail" is retried'),
        (lambda flow: flow.step("a", timeout="30m", retries=1), "a", "timeout of 1h is shorter than its retries"),
        (
            lambda flow: flow.agent_loop("a", max_duration="9s", retries=2),
            "a",
            "max_duration of 9s is shorter than its retries",
        ),
        (lambda flow: flow.respond("b", after=flow.respond("a")), "", "only the first response of a run counts"),
    ],
)
def test_what_is_probably_not_meant_is_found(build: Callable[[Any], Any], step: str, what: str) -> None:
    [finding] = found(build, timeout="1h")

    assert finding.step == step
    assert what in finding.what
    assert finding.why
    assert finding.fix


@pytest.mark.parametrize(
    "build",
    [
        lambda flow: flow.step("a", when=flow.input.x),
        lambda flow: flow.step("a", when=True),
        lambda flow: flow.step("b", when=flow.step("a").status == "recovered"),
        lambda flow: flow.step("b", after=flow.step("a")),
        lambda flow: flow.step("b", after=flow.step("a"), input="${{ default }}"),
        lambda flow: flow.step("b", after=flow.step(silent), input=1),
        lambda flow: flow.step("b", input=1, when=and_(flow.step("a").output.x, True)),
        lambda flow: flow.step("charge", retries=0),
        lambda flow: flow.step("charge", retries=5, input={"idempotency_key": "${{ input.id }}"}),
        lambda flow: flow.step("charge", retries=5, input={"id": "${{ run.id }}"}),
        lambda flow: flow.step("discharged", retries=5),
        lambda flow: flow.step("a", timeout="10m", retries=1),
        lambda flow: flow.http("post", url="https://example.org", method="POST", retries=1),
    ],
)
def test_what_is_meant_is_not_found(build: Callable[[Any], Any]) -> None:
    assert found(build, timeout="1h") == []


def test_the_need_of_retries_is_the_sum_of_delays_and_timeouts() -> None:
    retry = {"max_attempts": 4, "strategy": "exponential", "initial_delay": "1s", "max_delay": "5s"}

    [finding] = found(lambda flow: flow.step("a", timeout="2s", retry=retry), timeout="20s")

    assert "may take 22s" in finding.why
    assert found(lambda flow: flow.step("a", timeout="2s", retry=retry), timeout="22s") == []
