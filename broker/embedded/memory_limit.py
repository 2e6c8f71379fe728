"""How much memory the embedded broker takes before it does more to take less."""

from __future__ import annotations

from penstock.config.limits import MIB

GROWTH_PERCENT = "150"  # of its heap, between two collections of garbage

# The broker needs some 280 bytes in memory for each run that is kept, which has 3,200 on the disk, and for a run that
# has just been executed 450, for two minutes.
LEAST_BYTES = 640 * MIB
STORE_SHARE = 0.12  # of what may be stored: its index and a third more
STORED_SHARE = 0.15  # of what is stored, beside the least
MACHINE_SHARE = 20


def soft_limit(stored: int, store_max: int, usable: int) -> int:
    """The size of its memory in bytes above which the broker collects garbage more often, with so much stored of what
    may be stored, and so much memory that the service may use. It uses more if it needs more."""
    wanted = (usable // MACHINE_SHARE, int(store_max * STORE_SHARE), LEAST_BYTES + int(stored * STORED_SHARE))
    return min(max(wanted), usable // 2)
