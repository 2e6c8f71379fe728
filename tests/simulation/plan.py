"""What a seed stands for: workflows, how long everything takes, and a list of moves, each at its moment. Pure, and all
of it.

Shrinking takes moves away; so none of them may depend on another's being there, and each says in numbers what it picks.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from msgspec import Raw

from penstock.actors.runs.actor_state import EVENTS_MIN
from penstock.engine.definition.definitions import WorkflowDef, digest, from_json, to_json
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.workflow import Workflow
from penstock.engine.validation import parse
from tests.simulation import archiving, importing, operating, pruning
from tests.simulation import workflows as larger
from tests.simulation.limited import definitions, moments

CHAOS_S = 15.0  # how long things go wrong
POOL = 256  # workflows that there are; from this number on, as many with more kinds of steps (workflows.py)
FIXED = 2 * POOL  # from here on those of workflows.FIXED
CALLED = tuple(FIXED + number for number in range(len(larger.CALLED)))  # those that others start
ASLEEP, THREE, WAITING, BRIEF, AGAIN, MOTHER, MOTHERS, BUSY, DOOMED, RECOVERING, OVERDUE = range(
    FIXED + len(larger.CALLED), FIXED + len(larger.FIXED)
)
LIMITED = 10_000  # the number of a workflow, and this: with limits
LARGER, OF_SEEDS = frozenset({1, 4}), 5  # the seeds that have these: by their remainder
STEPS_MAX = 5
REQUESTS = 2  # one of eight workflows has HTTP requests: those whose number gives this remainder
REQUEST = {"url": "https://x.example/${{ run.workflow }}", "headers": {"A": "${{ secret.KEY }} ${{ run.version }}"}}
KINDS = (
    "event",
    "event",
    "snapshot",
    "snapshot",
    "schedule",
    "schedule",
    "schedule",
    "task",
    "api",
    "read",
    "ack",
    "any",
    "any",
    "letter",
    "bucket",
    "pull",
)

# What people do, and how often.
WISHES = {
    "start": 10, "start keyed": 4, "start many": 3, "schedule": 4, "unschedule": 2, "cancel": 4, "cancel many": 1,
    "replay": 4,
    "replay many": 1, "rerun": 1, "signal": 2,
}  # fmt: skip
# What goes wrong, and how often; a seed has some of them only.
TROUBLES = {
    "crash": 6, "crash between": 8, "crash_before": 6, "crash_after": 6, "crash front": 1, "restart": 1,
    "lose": 4, "lose_answer": 6, "stall": 3, "stall_answer": 3, "refuse": 3, "disconnect": 3,
    "redeliver": 3, "reset": 1, "pause": 2, "takeover": 2, "join": 2, "late schedules": 2, "repeat": 3,
    "freeze between": 2, "last words": 3, "broker restart": 3,
}  # fmt: skip
# What strangers and callers do with runs of larger workflows.
STRANGE = {"child ended": 3, "repeat": 2, "call": 3}
# Two owners of the same partitions, one of whom does not know of the other.
DUEL = {"freeze between": 6, "takeover": 2, "last words": 3, "stall": 1, "disconnect": 1}
DUELS = 8  # one of so many seeds is one
OUTLIVING = frozenset({"freeze between", "last words"})
LATE_KINDS = ("snapshot", "snapshot", "schedule", "schedule", "api", "event", "task")


class Move(NamedTuple):
    """`at` are s since the beginning; `pick` chooses among what is there, `more` is how much or how long, `kind` of
    which messages."""

    at: float
    act: str
    pick: int = 0
    more: float = 0.0
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.at:8.3f}  {self.act} pick={self.pick} more={self.more:g} {self.kind}".rstrip()


class Known(NamedTuple):
    """A workflow of the pool; `larger`: of those with more kinds of steps."""

    definition: WorkflowDef
    body: bytes
    digest: str
    workflow: Workflow
    larger: bool = False


class Plan(NamedTuple):
    """`workflows` are numbers of the pool; `latency_s` is about the longest way of a message when nothing holds it up.

    `pace`: how many times as slowly as outside leases are renewed and shards look around; most of what a world costs is
    that. `snapshot_events`: after so many events a run has a snapshot; 0: after each.
    """

    seed: int
    workflows: tuple[int, ...]
    latency_s: float
    tick_s: float
    pace: float
    moves: tuple[Move, ...]
    snapshot_events: int = 0


def plan_of(seed: int) -> Plan:
    """The plan of a seed, the same one for ever."""
    chance = Random(seed)
    first = POOL if seed % OF_SEEDS in LARGER else 0
    workflows = tuple(first + chance.randrange(POOL) for _ in range(chance.choice((1, 1, 2))))
    if moments.has_limits(seed):
        workflows = tuple(LIMITED + number for number in workflows)
    starts = [Move(round(chance.uniform(0, 3), 3), "start", number) for number in range(chance.choice((1, 1, 2)))]
    wishes = _moves(chance, WISHES, chance.choice((0, 1, 2, 4)))
    some = chance.sample(list(TROUBLES), chance.choice((1, 2, 3, 5)), counts=list(TROUBLES.values()))
    weights, count = {name: TROUBLES[name] for name in some}, chance.choice((0, 2, 4, 8, 12))
    if seed % DUELS == 0:
        weights, count = DUEL, chance.choice((2, 4))
    troubles = _moves(chance, weights, count)
    if first:
        troubles += _moves(chance, STRANGE, chance.choice((0, 0, 1, 2)))
    others = (operating, pruning, importing, archiving, moments)
    troubles += [Move(*one) for other in others for one in other.moments(seed, CHAOS_S)]
    latency_s = chance.choice((0.004, 0.004, 0.02, 0.1, 0.6))
    pace = chance.choice((1.0, 2.0)) if {"takeover", "join", "pause", "freeze between"} & set(weights) else 6.0
    if any(one.act in moments.SLOW for one in troubles):
        pace = min(pace, 2.0)
    return Plan(
        seed,
        workflows,
        latency_s,
        chance.choice((0.2, 0.5, 1.0)),
        pace,
        tuple(sorted([*starts, *wishes, *troubles])),
        EVENTS_MIN if seed % 2 else 0,
    )


def _moves(chance: Random, weights: dict[str, int], count: int) -> list[Move]:
    """Some come together: troubles are worst when there are several at once."""
    moves, at = [], 0.0
    for act in chance.choices(list(weights), list(weights.values()), k=count):
        at = (
            at + chance.uniform(0, 1) ** 2
            if chance.random() < 0.4
            else chance.uniform(0, chance.choice((5.0, 8.0, CHAOS_S)))
        )
        more = round(chance.choice((0.05, 0.5, 2.5, 7.0, 12.0)) * chance.uniform(0.5, 1.5), 3)
        kind = chance.choice(KINDS)
        if act in OUTLIVING:  # what was sent before matters most when another owner has gone on meanwhile
            more, kind = round(chance.uniform(4.0, 14.0), 3), chance.choice(LATE_KINDS)
        moves.append(Move(round(at % CHAOS_S, 3), act, chance.randrange(1000), more, kind))
    return moves


@lru_cache(4 * POOL)
def known(number: int) -> Known:
    """The workflow of this number."""
    definition = parse(_document(number))
    body = to_json(definition)
    named = digest(body)
    return Known(definition, body, named, compile_workflow(from_json(body), named), number % LIMITED >= POOL)


def _document(number: int) -> dict[str, Any]:
    if number >= LIMITED:
        return definitions.limited(_document(number - LIMITED), Random(f"limits of {number - LIMITED}"))
    if number >= FIXED:
        return larger.FIXED[number - FIXED]
    chance, name = Random(f"workflow {number}"), f"w{number}"
    if number >= POOL:
        return larger.drawn(chance, name)
    document = _definition(chance, name)
    if number % 8 == REQUESTS:
        document["steps"] = [_as_request(step) for step in document["steps"]]
    return document


def _definition(chance: Random, name: str) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    for number in range(chance.choice((1, 1, 2, 2, 3, 4, STEPS_MAX))):
        before = [step["id"] for step in steps]
        depends_on = chance.sample(before, min(len(before), chance.choice((0, 1, 1, 2))))
        step = {"id": f"s{number}", "depends_on": depends_on, **_fields(chance)}
        if depends_on and chance.random() < 0.25:
            step["skip_if"] = {"step_id": chance.choice(depends_on), "field": "x", "op": "==", "value": 1}
        steps.append(step)
    return {
        "name": name,
        "version": "1",
        "steps": steps,
        "default_retry": _retry(chance),
        "timeout": chance.choice((None, None, None, "20s", "2m")),
        "sticky": chance.choice((None, None, None, None, "soft", "hard")),
    }


def _fields(chance: Random) -> dict[str, Any]:
    kind = chance.choice(("normal",) * 7 + ("agent_loop", "agent_loop", "approval"))
    if kind == "approval":
        return {"type": kind, "config": {"timeout": chance.choice(("8s", "30s", "1h"))}}
    fields = {
        "type": kind,
        "task": chance.choice(("t", "u")),
        "timeout": chance.choice((None, None, "1s", "4s", "30s")),
    }
    if chance.random() < 0.15:
        fields["worker_group"] = "g"
    if kind == "agent_loop":
        fields["config"] = {"max_iterations": chance.choice((3, 5)), "loop_delay": chance.choice(("0s", "1s", "5s"))}
        if chance.random() < 0.3:
            fields["config"]["max_duration"] = "20s"
    if chance.random() < 0.3:
        fields["retry"] = _retry(chance)
    return fields


def _as_request(step: dict[str, Any]) -> dict[str, Any]:
    """Every normal step of the second task type as an HTTP request, with something to evaluate and something not to."""
    if step["type"] != "normal" or step["task"] != "u":
        return step
    return {**{key: value for key, value in step.items() if key != "task"}, "type": "http", "config": REQUEST}


def _retry(chance: Random) -> dict[str, Any]:
    return {
        "max_attempts": chance.choice((0, 1, 2, 3)),
        "strategy": chance.choice(("fixed", "linear", "exponential")),
        "initial_delay": chance.choice(("0s", "500ms", "3s", "10s")),
        "max_delay": "15s",
    }


def value_of(number: int) -> Raw:
    return Raw(b'{"x":%d}' % (number % 2))
