"""Checks of the broker: what it promises, its clock, its disk, and what it stores."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.config.limits import GIB, MIB
from penstock.http.diagnosis.checks.facts import ServiceFacts, Trouble

CLOCK_S_MAX = 1.0
DISK_FREE_MIN = 0.1
DISK_BYTES_MIN = 1 * GIB
STORAGE_FULL_AT = 0.8


def broker(facts: ServiceFacts) -> Iterator[Trouble]:
    for why in dict.fromkeys(facts.unknown.values()):
        checks = [check for check, reason in facts.unknown.items() if reason == why]
        yield Trouble(
            f"what these checks look at could not be read: {', '.join(sorted(checks))} ({why})",
            "is the broker frozen, overloaded or being restarted? Its log says more; ask again when it answers",
        )


def fsync(facts: ServiceFacts) -> Iterator[Trouble]:
    if facts.fsync == "interval":
        yield Trouble(
            "the broker writes to disk once a second (fsync = interval): a power cut can lose what was acknowledged in "
            "the last second, a crash of a process cannot",
            "set fsync = always, if that is too much to lose; it costs throughput (docs/settings.md)",
        )


def clock(facts: ServiceFacts) -> Iterator[Trouble]:
    for process, ahead_s in facts.clocks.items():
        if abs(ahead_s) > CLOCK_S_MAX:
            yield Trouble(
                f"the clock of {process} is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} the "
                "broker's: starts at a given time and the times in histories are off by that",
                "synchronise the clocks of the machines (NTP)",
            )


def disk(facts: ServiceFacts) -> Iterator[Trouble]:
    if facts.disk is None:
        return
    free, total = facts.disk
    if free < DISK_BYTES_MIN or free < total * DISK_FREE_MIN:
        yield Trouble(
            f"the disk of the data directory has {free // MIB} MiB left of {total // MIB} MiB: when it is full, "
            "nothing is stored",
            "free space, or move data_dir to a larger disk",
        )


def storage(facts: ServiceFacts) -> Iterator[Trouble]:
    if facts.storage:
        yield Trouble(
            f"nothing is stored: {facts.storage}",
            "free or add space, raise max_store_bytes, or restart the broker if its disk has failed",
        )
    elif facts.limit and facts.used > facts.limit * STORAGE_FULL_AT:
        share = 100 * facts.used // facts.limit
        yield Trouble(
            f"the broker's storage is {share} % full: {facts.used // MIB} of {facts.limit // MIB} MiB",
            "raise max_store_bytes, or remove old runs: `penstock prune`, history_max_age (docs/operations.md)",
        )


def dead_letters(facts: ServiceFacts) -> Iterator[Trouble]:
    if facts.dead_letters:
        are = "dead letter: a task or event" if facts.dead_letters == 1 else "dead letters: tasks and events"
        yield Trouble(
            f"{facts.dead_letters} {are} that failed for good",
            "`penstock dlq list` shows them with their errors; `penstock dlq replay` and `discard` deal with them",
        )
