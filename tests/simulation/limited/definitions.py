"""What a definition of a seed with limits says of them. Pure.

A scope that several workflows share allows the same everywhere. Nobody waits in a circle: who holds a slot waits only
for such whose holders wait for nothing that it holds. So children have other scopes than those that start them, but
for FAMILY, which a child may have from an ancestor; they take that one alone, and others take it last.
"""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

Fields = dict[str, Any]

TEAM = "has(run.labels.team) ? run.labels.team : 'none'"
SHARED = {"a1": 1, "a2": 2}  # of runs that nobody else starts
FAMILY = {"limit": 1, "scope": "zf"}
EXECUTIONS = {"e1": 1, "e2": 2, "e3": 3}
RATES: tuple[Fields, ...] = (
    {"limit": 2, "per": "1s", "scope": "r2"},
    {"limit": 1, "per": "700ms", "scope": "r1"},
    {"limit": 2, "per": "2s", "burst": 3, "scope": "b3"},
)
ON_LIMIT = ("queue", "queue", "queue", "skip", "replace")
LIMITED_KINDS = ("normal", "agent_loop", "planner", "http", "map")

CALLED: dict[str, Fields] = {
    "child": {"concurrency": [FAMILY], "priority": 2},
    "strict": {"concurrency": [{"limit": 1, "scope": "c1", "on_limit": "skip"}]},
    "quick": {"rate_limit": [RATES[0]]},
    "after": {"concurrency": [{"limit": 1, "scope": "c2", "on_limit": "replace"}]},
}


def limited(document: Fields, chance: Random) -> Fields:
    """The definition with limits of its runs or of executions, or of both."""
    document = deepcopy(document)
    name, steps = document["name"], [step for step in document["steps"] if _may_have(step)]
    if name in CALLED:
        return {**document, **CALLED[name]}
    both = chance.random()
    if both < 0.75 or not steps:
        document |= _of_runs(chance, len(name))
    if both > 0.35:
        for step in steps:
            if chance.random() < 0.7:
                step |= _of_executions(chance)
    return document


def _may_have(step: Fields) -> bool:
    """Elements of a map that are runs would hold slots that their steps wait for."""
    return step.get("type", "normal") in LIMITED_KINDS and "workflow" not in step.get("config", {})


def _of_runs(chance: Random, own: int) -> Fields:
    found: list[Fields] = []
    if chance.random() < 0.4:
        found.append({"limit": 1 + own % 2})
    scopes = chance.sample(sorted(SHARED), chance.choice((0, 1, 1, 2)))
    found += [{"limit": SHARED[scope], "scope": scope} for scope in scopes]
    if chance.random() < 0.3:
        found.append(FAMILY)
    found = [one if one is FAMILY else {**one, **_more(chance), **_on_limit(chance)} for one in found[:3]]
    fields: Fields = {"concurrency": found} if found else {}
    if chance.random() < 0.3 or not found:
        fields["rate_limit"] = [chance.choice(RATES)]
    if chance.random() < 0.5:
        fields["priority"] = _priority(chance)
    return fields


def _of_executions(chance: Random) -> Fields:
    scopes = chance.sample(sorted(EXECUTIONS), chance.choice((0, 1, 1, 2)))
    fields: Fields = {}
    if scopes:
        fields["concurrency"] = [{"limit": EXECUTIONS[scope], "scope": scope, **_more(chance)} for scope in scopes]
    if chance.random() < 0.3 or not scopes:
        fields["rate_limit"] = [chance.choice(RATES)]
    if chance.random() < 0.5:
        fields["priority"] = _priority(chance)
    return fields


def _more(chance: Random) -> Fields:
    """A limit for each team, or turns between the teams."""
    number = chance.random()
    return {"key": TEAM} if number < 0.25 else {"fair_by": TEAM} if number < 0.5 else {}


def _on_limit(chance: Random) -> Fields:
    return {"on_limit": chance.choice(ON_LIMIT)}


def _priority(chance: Random) -> int | str:
    return chance.choice((-3, 1, 5, f"({TEAM}) == 'none' ? 1 : 7"))


def team_of(labels: dict[str, str] | None) -> str:
    """What TEAM comes to."""
    return (labels or {}).get("team", "none")
