"""The least that breaks a run: faults are taken away, one after the other, as long as it still breaks."""

from __future__ import annotations

from penstock.testing.storms.weather import Passed, StormCase, through


def least(case: StormCase, broken: Passed, usual: Passed) -> Passed:
    """The same seed with as few of its faults as break it; another error is as good."""
    found = broken
    for fault in broken.faults:
        fewer = [one for one in found.faults if one != fault]
        tried = through(case, broken.seed, usual, fewer)
        if tried.error is not None:
            found = tried
    return found
