"""When a failed attempt is retried."""

from __future__ import annotations

from zlib import crc32

from penstock.config.limits import RETRY_JITTER_RATIO
from penstock.engine.definition.durations import NS_MAX, SECOND_NS
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.workflow import RetryPolicy

DELAY_S_MAX = NS_MAX / SECOND_NS


def delay_s(policy: RetryPolicy, run_id: str, step_id: str, failed_attempt: int) -> float:
    """Seconds to wait after the `failed_attempt`-th execution (from 1) failed; the same on every replay."""
    return _base_s(policy, failed_attempt) * (1 + RETRY_JITTER_RATIO * _jitter(f"{run_id}.{step_id}.{failed_attempt}"))


def longest_delay_s(policy: RetryPolicy) -> float:
    """The longest wait before any retry of this policy, in seconds; 0 without retries."""
    if policy.retries < 1:
        return 0.0
    base_s = max(_base_s(policy, 1), _base_s(policy, policy.retries))
    return min(base_s * (1 + RETRY_JITTER_RATIO), DELAY_S_MAX)


def retry_after_s(failure: Failure) -> float:
    """Seconds that the worker asked to wait, at most the longest duration; 0 or less means at once."""
    return min(failure.retry_after_ms, DELAY_S_MAX * 1000) / 1000


def _base_s(policy: RetryPolicy, n: int) -> float:
    match policy.strategy:
        case "linear":
            base = policy.initial_s * n
        case "exponential":
            base = _grown(policy.initial_s, policy.multiplier, n - 1)
        case _:
            base = policy.initial_s
    return min(base, DELAY_S_MAX if policy.max_s is None else policy.max_s)


def _grown(initial_s: float, multiplier: float, exponent: int) -> float:
    try:
        return initial_s * multiplier**exponent
    except OverflowError:
        return DELAY_S_MAX if initial_s else 0.0


def _jitter(key: str) -> float:
    """A number in [-1, 1], evenly distributed, derived only from the key."""
    return 2 * crc32(key.encode()) / 0xFFFFFFFF - 1
