"""When what goes wrong in a seed with limits, besides what goes wrong in every seed. Pure."""

from __future__ import annotations

from random import Random

OF_SEEDS, SEED = 3, 0  # the seeds that have limits: by their remainder
STARTS = ("start", "start", "start keyed", "start many")
TROUBLES = {
    "crash between": 6, "crash_before": 4, "crash_after": 4, "lose": 4, "lose_answer": 5, "stall": 3, "stall_answer": 2,
    "refuse": 2, "last words": 3, "takeover": 2, "join": 2, "freeze between": 3, "redeliver": 2, "disconnect": 2,
    "broker restart": 1, "repeat": 2, "cancel": 4,
}  # fmt: skip
KINDS = ("limit", "limit", "limit", "event", "any", "read", "pull")
LATE = frozenset({"freeze between", "last words"})
SLOW = frozenset({"takeover", "join", "freeze between"})


def has_limits(seed: int) -> bool:
    return seed % OF_SEEDS == SEED


def moments(seed: int, until_s: float) -> list[tuple[float, str, int, float, str]]:
    """Drawn apart from all else, so that all else in a seed stays as it is."""
    if not has_limits(seed):
        return []
    chance = Random(f"limits {seed}")
    found = [
        (round(chance.uniform(0, 4), 3), chance.choice(STARTS), chance.randrange(1000), 0.0, "")
        for _ in range(chance.choice((1, 2, 3, 5)))
    ]
    for act in chance.choices(list(TROUBLES), list(TROUBLES.values()), k=chance.choice((0, 1, 2, 4))):
        more = round(chance.choice((0.05, 0.5, 2.5)) * chance.uniform(0.5, 1.5), 3)
        more = round(chance.uniform(4.0, 14.0), 3) if act in LATE else more
        found.append(
            (round(chance.uniform(0, until_s / 2), 3), act, chance.randrange(1000), more, chance.choice(KINDS))
        )
    return found
