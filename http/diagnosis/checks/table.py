"""All checks, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from penstock.client.operating.views import CheckView, DoctorView, FindingView
from penstock.http.diagnosis.checks import of_broker, of_engines, of_limits, of_workers
from penstock.http.diagnosis.checks.facts import ServiceFacts, Trouble

ServiceCheck: TypeAlias = Callable[[ServiceFacts], Iterator[Trouble]]

# What these find is a note, and their check is passed: it is how the service was set up.
NOTED = frozenset({"fsync"})

CHECKS: Mapping[str, ServiceCheck] = {
    "broker": of_broker.broker,
    "fsync": of_broker.fsync,
    "clock": of_broker.clock,
    "disk": of_broker.disk,
    "storage": of_broker.storage,
    "engines": of_engines.engines,
    "engine_lag": of_engines.engine_lag,
    "index": of_engines.index,
    "consumers": of_workers.consumers,
    "tasks_without_workers": of_workers.tasks_without_workers,
    "limits": of_limits.limits,
    "dead_letters": of_broker.dead_letters,
    "versions": of_engines.versions,
}


def examined(facts: ServiceFacts) -> DoctorView:
    """The result of every check. One that lacks facts finds nothing, and is not passed."""
    found = {name: [] if name in facts.unknown else list(check(facts)) for name, check in CHECKS.items()}
    listed = [FindingView(name, *trouble) for name, troubles in found.items() for trouble in troubles]
    return DoctorView(
        [
            CheckView(name, ok=name not in facts.unknown and (name in NOTED or not troubles))
            for name, troubles in found.items()
        ],
        [one for one in listed if one.check not in NOTED],
        [one for one in listed if one.check in NOTED],
    )
