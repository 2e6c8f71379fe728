"""What counts of what is said of a limit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.config.limits import LIMIT_OVERRIDES_MAX, LIMIT_WORKFLOWS_MAX
from penstock.engine.errors import Conflict
from penstock.engine.limits.configs import LimitConfig, LimitOverride, RegisteredLimit, allowed_now, decode, encode
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Allowed

PLACE = (LimitKind.RUNS, "openai")
OF_ALL, OF_ONE = LimitName(*PLACE), LimitName(*PLACE, "acme")
ASKED, FIVE, SEVEN = Allowed(3), Allowed(5), Allowed(7)


def registered(workflow: str, allowed: Allowed) -> RegisteredLimit:
    return RegisteredLimit(workflow, "1", allowed, at="2026-01-01T00:00:00.000Z")


def overridden(limit: int) -> LimitOverride:
    return LimitOverride(Allowed(limit), "2026-01-01T00:00:00.000Z", "ann")


def test_what_is_asked_for_counts_where_nothing_is_said() -> None:
    assert allowed_now({}, OF_ALL, ASKED) == ASKED
    assert allowed_now({(LimitKind.RUNS, "other"): LimitConfig(LimitKind.RUNS, "other")}, OF_ALL, ASKED) == ASKED
    empty = {PLACE: LimitConfig(*PLACE, keys={"b": overridden(1)})}
    assert allowed_now(empty, OF_ONE, ASKED) == ASKED


def test_kinds_of_one_scope_are_counted_apart() -> None:
    of_executions = LimitConfig(LimitKind.EXECUTIONS, "openai", (registered("a", FIVE),))
    assert allowed_now({(LimitKind.EXECUTIONS, "openai"): of_executions}, OF_ALL, ASKED) == ASKED


def test_what_was_registered_last_counts_by_whomever() -> None:
    config = LimitConfig(*PLACE).with_registered(registered("a", FIVE)).with_registered(registered("b", SEVEN))
    assert allowed_now({PLACE: config}, OF_ONE, ASKED) == SEVEN
    again = config.with_registered(registered("a", FIVE))
    assert allowed_now({PLACE: again}, OF_ONE, ASKED) == FIVE
    assert [one.workflow for one in again.registered] == ["a", "b"]


def test_nothing_changes_when_the_same_counts_already() -> None:
    config = LimitConfig(*PLACE).with_registered(registered("a", FIVE))
    assert config.with_registered(replace(registered("a", FIVE), at="later")) is config
    assert config.without("b") is config
    assert config.without_override(None) is config
    assert config.without_override("acme") is config


def test_what_a_workflow_names_no_more_stops_to_count() -> None:
    config = LimitConfig(*PLACE).with_registered(registered("a", FIVE)).with_registered(registered("b", SEVEN))
    assert allowed_now({PLACE: config.without("b")}, OF_ALL, ASKED) == FIVE
    assert config.without("b").without("a").empty


def test_an_override_counts_first_and_that_of_a_key_before_it() -> None:
    config = LimitConfig(*PLACE, (registered("a", FIVE),)).with_override(None, overridden(0))
    assert allowed_now({PLACE: config}, OF_ALL, ASKED) == Allowed(0)
    of_key = config.with_override("acme", overridden(9))
    assert allowed_now({PLACE: of_key}, OF_ONE, ASKED) == Allowed(9)
    assert allowed_now({PLACE: of_key}, LimitName(*PLACE, "other"), ASKED) == Allowed(0)
    assert allowed_now({PLACE: of_key.without_override(None)}, LimitName(*PLACE, "other"), ASKED) == FIVE
    assert allowed_now({PLACE: of_key.without_override("acme")}, OF_ONE, ASKED) == Allowed(0)


def test_too_many_keys_are_refused_and_a_known_one_is_not() -> None:
    full = LimitConfig(*PLACE, keys={str(number): overridden(1) for number in range(LIMIT_OVERRIDES_MAX)})
    with pytest.raises(Conflict, match="1000 keys of this scope"):
        full.with_override("one more", overridden(1))
    assert full.with_override("7", overridden(2)).keys["7"] == overridden(2)


def test_the_oldest_workflows_are_forgotten() -> None:
    config = LimitConfig(*PLACE)
    for number in range(LIMIT_WORKFLOWS_MAX + 1):
        config = config.with_registered(registered(str(number), FIVE))
    assert len(config.registered) == LIMIT_WORKFLOWS_MAX
    assert config.registered[0].workflow == str(LIMIT_WORKFLOWS_MAX)
    assert "0" not in {one.workflow for one in config.registered}


def test_the_stored_form_is_read_back() -> None:
    rate = RegisteredLimit("a", "2", Allowed(10, 1.0, 5), "call", "2026-01-01T00:00:00.000Z")
    config = LimitConfig(LimitKind.RATE, "openai", (rate,), overridden(1), {"ä.b/c": overridden(2)})
    assert decode(encode(config)) == config
