"""How much memory the embedded broker takes before it does more to take less."""

from __future__ import annotations

from penstock.config.limits import MIB

GROWTH_PERCENT = "150"  # of its heap, between two collections of garbage

# A run that is kept takes 70 bytes in the broker's memory, or 110 if its id is a hash, and 3,200 on the disk. One that
# has just been executed takes 800 more for two minutes.
LEAST_BYTES = 640 * MIB
STORE_SHARE = 0.09  # of what may be stored: more than twice its index
STORED_SHARE = 0.07  # of what is stored, beside the least: twice its index
MACHINE_SHARE = 32


def soft_limit(stored: int, store_max: int, usable: int) -> int:
    """The size of its memory in bytes above which the broker collects garbage more often, with so much stored of what
    may be stored, and so much memory that the service may use. It uses more if it needs more."""
    wanted = (usable // MACHINE_SHARE, int(store_max * STORE_SHARE), LEAST_BYTES + int(stored * STORED_SHARE))
    return min(max(wanted), usable // 2)
