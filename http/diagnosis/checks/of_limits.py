"""The check of limits: those that let nothing begin though something waits, and those whose slots paused runs have."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.definition.identifiers import quoted
from penstock.http.diagnosis.checks.facts import ServiceFacts, Trouble, WaitedLimit

NAMED_MAX = 3


def limits(facts: ServiceFacts) -> Iterator[Trouble]:
    for one in facts.limits:
        if not one.allowed:
            yield Trouble(f"{_name(one)} lets nothing begin, and {_waits(one)}", _way_out(one))
        if one.paused:
            yield Trouble(
                f"{_name(one)} has slots that paused runs hold ({_named(one.paused)}), and {_waits(one)}",
                "`penstock run resume RUN` lets them go on, and `penstock run cancel RUN` ends them; "
                f"`penstock limit set {_options(one, 'N')}` allows more meanwhile",
            )


def _name(one: WaitedLimit) -> str:
    of_key = "" if one.name.key is None else f", key {quoted(one.name.key)}"
    return f"the limit {quoted(one.name.scope)} ({one.name.kind}{of_key})"


def _waits(one: WaitedLimit) -> str:
    return "1 waits for it" if one.waiting == 1 else f"{one.waiting} wait for it"


def _way_out(one: WaitedLimit) -> str:
    if one.overridden:
        return f"`penstock limit reset {_options(one)}` lets what is registered count again"
    return f"`penstock limit set {_options(one, 'N')}` lets so many begin, if that is not wanted any more"


def _options(one: WaitedLimit, *arguments: str) -> str:
    of_key = () if one.name.key is None else (f"--key {quoted(one.name.key)}",)
    return " ".join((one.name.scope, *arguments, f"--kind {one.name.kind}", *of_key))


def _named(runs: tuple[str, ...]) -> str:
    more = len(runs) - NAMED_MAX
    return ", ".join(runs[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
