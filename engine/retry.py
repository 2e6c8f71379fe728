"""When a failed attempt is tried again."""

from __future__ import annotations

from zlib import crc32

from penstock.engine.workflow import RetryPolicy

JITTER = 0.1
DELAY_S_MAX = 10 * 365 * 86400.0


def delay_s(policy: RetryPolicy, run_id: str, step_id: str, failed_attempt: int) -> float:
    """Seconds to wait after the `failed_attempt`-th execution (from 1) failed; the same on every replay."""
    return _base_s(policy, failed_attempt) * (1 + JITTER * _jitter(f"{run_id}.{step_id}.{failed_attempt}"))


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
        return DELAY_S_MAX


def _jitter(key: str) -> float:
    """Evenly spread over [-1, 1], derived from the key alone."""
    return crc32(key.encode()) / 0x7FFFFFFF - 1 if key else 0.0
