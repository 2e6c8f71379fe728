#!/usr/bin/env python3
"""Measure the service: start one for each workload, with a data directory and a worker of its own, and print what came
out.

    scripts/bench.py                            all of it: about an hour
    scripts/bench.py --only bulk --only latency some of it
    scripts/bench.py --json now.json            keep the figures, to compare with later: --compare now.json
    scripts/bench.py --quick                    everything once and small: whether it works, not how fast; what needs
                                                no service of its own shares one
    scripts/bench.py --peers --repeat 3         three-step runs by Restate, DBOS and Temporal's development server
                                                beside penstock's; they are installed in ~/.cache/penstock-peers

Everything runs on this machine: broker, engine, front end, worker and load. The load is started over HTTP. That bulks
have ended is known from the number of messages in the log, which disturbs nothing; when, from the broker's times in
it, read afterwards. CPU and memory are taken from /proc. The columns of noise say how quiet the machine was.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec
import uvloop
from load.environment import QUICK, Setup, Sizes, setup, sharing
from load.samples import Sample
from load.table import Results, show
from load.workloads import WORKLOADS
from msgspec.structs import replace
from peers.comparison import QUICK as QUICK_LENGTH
from peers.comparison import Length
from peers.comparison import compare as compare_systems
from peers.summary import show as show_systems


@click.command(help=__doc__.splitlines()[0] if __doc__ else None, context_settings={"show_default": True})
@click.option(
    "--only", multiple=True, type=click.Choice(list(WORKLOADS)), help="These workloads; more than one is fine."
)
@click.option("--repeat", type=click.IntRange(1, 100), default=5, help="How often each is run; the median counts.")
@click.option("--shards", type=click.IntRange(1, 32), help="Shards of the service; its own default if not given.")
@click.option(
    "--idle-wait", type=click.FloatRange(0), default=Sizes().idle_wait_s, help="parked: seconds before memory is taken."
)
@click.option(
    "--parked",
    type=click.IntRange(1),
    default=Sizes().parked,
    help="Runs of parked-100k, asleep-100k.",
)
@click.option("--kept", type=click.IntRange(1), default=Sizes().kept, help="Runs of kept.")
@click.option("--archived", type=click.IntRange(1), default=Sizes().archived, help="Runs of kept-archived.")
@click.option("--peers", is_flag=True, help="Instead, the same load on other systems and on this one.")
@click.option("--quick", is_flag=True, help="Small and once.")
@click.option(
    "--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this file."
)
@click.option(
    "--compare", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Figures of an earlier call."
)
def main(
    only: tuple[str, ...],
    repeat: int,
    shards: int | None,
    idle_wait: float,
    parked: int,
    kept: int,
    archived: int,
    peers: bool,
    quick: bool,
    target: Path | None,
    compare: Path | None,
) -> None:
    if peers and (only or compare):
        raise click.UsageError("--peers has no workloads to choose or to compare: leave out --only and --compare")
    if peers:
        _beside_others(1 if quick else repeat, quick, target)
        return
    before = None if compare is None else msgspec.json.decode(compare.read_bytes(), type=Results)
    sizes = QUICK if quick else replace(Sizes(), idle_wait_s=idle_wait, parked=parked, kept=kept, archived=archived)
    results = Results(_machine(), quick, {}, {}, {}, {})
    with setup(sizes, shards) as given:
        for samples in _quickly(given, only or WORKLOADS) if quick else _measured(given, only or WORKLOADS, repeat):
            results.add(samples)
            if target is not None:
                target.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    show(results, before)


def _beside_others(turns: int, quick: bool, target: Path | None) -> None:
    comparison = compare_systems(_machine(), turns, QUICK_LENGTH if quick else Length())
    if target is not None:
        target.write_bytes(msgspec.json.format(msgspec.json.encode(comparison)))
    show_systems(comparison)


def _measured(given: Setup, names: Iterable[str], repeat: int) -> Iterator[list[Sample]]:
    """The samples of each workload."""
    for name in names:
        workload = WORKLOADS[name]
        numbers = range(1 if workload.once else repeat)
        yield [_shown(name, number, uvloop.run(workload.run(given))) for number in numbers]


def _quickly(given: Setup, names: Iterable[str]) -> Iterator[list[Sample]]:
    """One sample of each workload, by turns on the same service where they need none of their own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        shared = sharing(given)
        together = runner.run(shared.__aenter__())
        try:
            for name in names:
                yield [_shown(name, 0, runner.run(WORKLOADS[name].run(together)))]
        finally:
            runner.run(shared.__aexit__(None, None, None))


def _shown(name: str, number: int, sample: Sample) -> Sample:
    figures = ", ".join(f"{row} {value:,.4g}" for row, value in sample.rows.items())
    print(f"{name} {number + 1}: {figures}", file=sys.stderr, flush=True)
    return sample


def _machine() -> str:
    cores, system = len(os.sched_getaffinity(0)), f"{platform.system()} {platform.release()}"
    return f"{cores} cores, {system}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
