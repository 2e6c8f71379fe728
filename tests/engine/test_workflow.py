"""A definition compiled: edges both ways, durations in seconds, the retry policy that counts."""

from __future__ import annotations

import pytest

from penstock.engine.run.workflow import NO_RETRY, RetryPolicy
from tests.engine.build import DIGEST, step, workflow

OWN = {"max_attempts": 1, "initial_delay": "1s"}
DEFAULT = {"max_attempts": 2, "initial_delay": "2s"}


def test_edges_are_known_from_both_ends() -> None:
    compiled = workflow(step("d", "b", "c"), step("b", "a"), step("a"), step("c", "a"), step("e"))
    assert {step_id: (plan.depends_on, plan.dependents) for step_id, plan in compiled.steps.items()} == {
        "a": ((), ("b", "c")),
        "b": (("a",), ("d",)),
        "c": (("a",), ("d",)),
        "d": (("b", "c"), ()),
        "e": ((), ()),
    }
    assert (compiled.roots, compiled.terminals) == (("a", "e"), ("d", "e"))


def test_a_compiled_workflow_keeps_name_version_and_digest() -> None:
    compiled = workflow(step("a"), version="7")
    assert (compiled.name, compiled.version, compiled.digest) == ("w", "7", DIGEST)


def test_every_step_waits_at_first() -> None:
    compiled = workflow(step("a"), step("b", "a"))
    assert {step_id: state.status.value for step_id, state in compiled.waiting.items()} == {
        "a": "pending",
        "b": "pending",
    }


def test_durations_are_seconds_and_absent_ones_no_bound() -> None:
    compiled = workflow(step("a", timeout="1m30s"), step("b", timeout=250_000_000), step("c"), timeout="1h")
    assert [plan.timeout_s for plan in compiled.steps.values()] == [90, 0.25, None]
    assert compiled.timeout_s == 3600
    assert workflow(step("a")).timeout_s is None


def test_routing_is_copied_from_the_step() -> None:
    plan = workflow(step("a", task="resize", worker_group="gpu", metadata={"k": "v"})).steps["a"]
    assert (plan.task, plan.group, plan.metadata) == ("resize", "gpu", {"k": "v"})


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ({"retry": OWN, "retries": 3}, RetryPolicy(1, initial_s=1.0)),
        ({"retry": {"max_attempts": 0}}, RetryPolicy(0)),
        ({"retries": 3}, RetryPolicy(2, initial_s=2.0)),
        ({}, RetryPolicy(2, initial_s=2.0)),
    ],
)
def test_the_steps_retry_comes_before_the_default_and_the_default_before_retries(
    fields: dict[str, object], policy: RetryPolicy
) -> None:
    assert workflow(step("a", **fields), default_retry=DEFAULT).steps["a"].retry == policy


def test_retries_alone_are_so_many_five_seconds_apart() -> None:
    assert workflow(step("a", retries=3)).steps["a"].retry == RetryPolicy(3, strategy="fixed", initial_s=5.0)


def test_without_any_of_them_nothing_is_tried_again() -> None:
    assert workflow(step("a")).steps["a"].retry == NO_RETRY
    assert NO_RETRY.retries == 0


def test_a_policy_is_taken_over_whole() -> None:
    declared = {
        "max_attempts": 9,
        "strategy": "exponential",
        "initial_delay": "500ms",
        "max_delay": "1m",
        "multiplier": 1.5,
    }
    assert workflow(step("a", retry=declared)).steps["a"].retry == RetryPolicy(9, "exponential", 0.5, 60.0, 1.5)


def test_a_multiplier_is_two_unless_it_is_said() -> None:
    assert workflow(step("a", retry={"max_attempts": 1, "strategy": "exponential"})).steps["a"].retry.multiplier == 2
