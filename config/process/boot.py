"""Files as they are known since the start of this machine."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def name_since_boot(file: int | Path) -> str:
    """A name that is unique to this open file, or to the file with this path, until the machine starts again: a copy of
    it, on this machine or another, has another one. Raises OSError, also where the system has no id of its start."""
    found = os.stat(file)
    return blake2b(f"{BOOT_ID.read_text()}.{found.st_dev}.{found.st_ino}".encode(), digest_size=12).hexdigest()
