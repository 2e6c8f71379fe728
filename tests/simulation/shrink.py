"""A failing plan made short: moves are taken away as long as the world still breaks the same law, then what is left is
told."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.simulation.plan import Move, Plan, known
from tests.simulation.playing import Outcome, play

PLAYS_MAX = 400
TRACE_MAX = 400
SHAPE_MAX = 40
NUMBERS = re.compile(r"[0-9.]+")

Player = Callable[[Plan], Outcome]


def shortest(plan: Plan, player: Player = play) -> tuple[Plan, Outcome]:
    """The shortest plan found that breaks a law, and what comes of it with its trace. `plan` must break one."""
    plays, law = 0, _shape(player(plan).law)

    def breaks(tried: Plan) -> bool:
        nonlocal plays
        plays += 1
        return plays <= PLAYS_MAX and _shape(player(tried).law) == law

    assert law, "nothing is broken"
    for one in plan.workflows if len(plan.workflows) > 1 else ():
        if breaks(fewer := plan._replace(workflows=(one,))):
            plan = fewer
            break
    plan = plan._replace(moves=_fewest(plan.moves, lambda moves: breaks(plan._replace(moves=moves))))
    return plan, play(plan, trace=True) if player is play else player(plan)


def _shape(law: str | None) -> str:
    """Which law it is, whatever the numbers in it: a shorter plan shall break the same one."""
    return NUMBERS.sub("#", law or "")[:SHAPE_MAX]


def _fewest(moves: tuple[Move, ...], breaks: Callable[[tuple[Move, ...]], bool]) -> tuple[Move, ...]:
    """Ever smaller pieces are left out, until no single move can be."""
    size = max(1, len(moves) // 2)
    while True:
        at, before = 0, len(moves)
        while at < len(moves):
            fewer = moves[:at] + moves[at + size :]
            if breaks(fewer):
                moves = fewer
            else:
                at += size
        if size == 1 and len(moves) == before:
            return moves
        size = max(1, size // 2)


def report(plan: Plan, outcome: Outcome, *, trace: bool = False) -> str:
    """What was broken and how, for people."""
    lines = [f"seed {plan.seed}: {outcome.law or 'every law holds'}"]
    if outcome.run_id is not None:
        lines.append(f"run {outcome.run_id}")
    lines.append(f"replay: python -m tests.simulation {plan.seed}")
    lines += [f"workflow: {known(number).body.decode()}" for number in plan.workflows]
    lines += [
        f"latency {plan.latency_s} s, tick {plan.tick_s} s, pace {plan.pace:g}; the moves:",
        *map(str, plan.moves),
    ]
    if outcome.history:
        lines += ["the run's history:", *outcome.history]
    if trace:
        lines += ["what reached the broker:", *outcome.trace]
    elif outcome.law is not None and outcome.run_id is not None:
        about = [line for line in outcome.trace if outcome.run_id in line or "---" in line]
        lines += [f"what reached the broker, of this run (the last {TRACE_MAX}):", *about[-TRACE_MAX:]]
    return "\n".join(lines)
