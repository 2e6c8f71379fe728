"""Checks of the engines: whether all is owned, how far they and the run index are, and which versions run."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.http.diagnosis.checks.facts import ServiceFacts, Trouble
from penstock.http.system.health import ranges

LAG_S_MAX = 5.0
NAMED_MAX = 3
START = "start an engine: `penstock serve`, or `penstock engine` with an external broker"


def engines(facts: ServiceFacts) -> Iterator[Trouble]:
    if facts.unowned:
        yield Trouble(
            f"no engine has the partitions {ranges(facts.unowned)}: runs in them do not go on",
            f"{START}; a drained or crashed one is replaced within seconds",
        )
    if not facts.triggers_run:
        yield Trouble("no engine runs the triggers: nothing is started by cron, events or webhooks", START)


def engine_lag(facts: ServiceFacts) -> Iterator[Trouble]:
    late = [lag for lag in facts.lags if lag.seconds > LAG_S_MAX]
    if late:
        worst, events = max(late, key=lambda lag: lag.seconds), sum(lag.events for lag in late)
        partitions = min(events, sum(lag.partitions for lag in late))
        bound = "up to " if partitions > len(late) else ""
        yield Trouble(
            f"the engines are behind: {events} event{'s wait' if events > 1 else ' waits'} in {bound}{partitions} "
            f"partition{'s' if partitions > 1 else ''}, the oldest for {worst.seconds:.0f} s (partition "
            f"{worst.partition})",
            "wait if it gets less; else add shards or engines, or look for what holds them in their log",
        )


def index(facts: ServiceFacts) -> Iterator[Trouble]:
    if not facts.index_alive:
        yield Trouble(
            "the run index is not followed: lists of runs show an old state",
            "restart the process `services`; an unreadable index is made again from the log",
        )
    elif facts.index_behind and facts.index_behind_s > LAG_S_MAX:
        yield Trouble(
            f"the run index is {facts.index_behind} messages and {facts.index_behind_s:.0f} s behind the log: lists of "
            "runs lack the newest",
            "wait: it reads on by itself; look for a slow or full disk if it does not",
        )


def versions(facts: ServiceFacts) -> Iterator[Trouble]:
    if len(facts.versions) > 1:
        found = "; ".join(f"{version}: {_named(who)}" for version, who in sorted(facts.versions.items()))
        yield Trouble(
            f"{len(facts.versions)} versions of penstock run at the same time ({found})",
            "finish the upgrade: restart what runs an older version (docs/operations.md)",
        )


def _named(who: tuple[str, ...]) -> str:
    more = len(who) - NAMED_MAX
    return ", ".join(who[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
