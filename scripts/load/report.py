"""A load's result as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from .counts import Result
from .figures import Percentiles, sparkline

ERRORS_SHOWN = 5


def lines(result: Result) -> Iterator[str]:
    """The whole report."""
    accepted = f"{result.accepted:,} of {result.begun:,} runs of {result.steps} steps accepted"
    yield f"{result.mode}: {accepted}, {_ended(result)}"
    yield f"  accepted   {result.accepted_per_s:>10,.1f} runs/s"
    yield f"  ended      {result.runs_per_s:>10,.1f} runs/s over {result.seconds:.2f} s"
    yield from _percentiles("answer", result.acceptance_ms)
    yield from _percentiles("run", result.run_ms)
    if len(result.ended_per_second) > 1:
        ended = result.ended_per_second
        yield f"  per second {sparkline(ended)}  {min(ended):,} to {max(ended):,}"
    for error, count in sorted(result.errors.items(), key=lambda item: -item[1])[:ERRORS_SHOWN]:
        yield f"  {count} times: {error}"


def _ended(result: Result) -> str:
    ended = ", ".join(f"{count:,} {status}" for status, count in sorted(result.ended.items()))
    left = result.accepted - sum(result.ended.values())
    return (ended or "none ended") + (f", {left:,} not seen to end" if left else "")


def _percentiles(name: str, found: Percentiles | None) -> Iterator[str]:
    if found is not None:
        figures = f"p50 {found.p50:,.2f}  p90 {found.p90:,.2f}  p99 {found.p99:,.2f}  max {found.max:,.2f}"
        yield f"  {name + ', ms':<10} {figures}  ({found.count:,})"
