"""Durations and sizes as people write them: `30s`, `1h30m`, `7d`; `10GiB`, `64KB`, `1024`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

DURATION_NS: Mapping[str, int] = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
SIZE_BYTES: Mapping[str, int] = {
    "TiB": 2**40,
    "GiB": 2**30,
    "MiB": 2**20,
    "KiB": 2**10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "KB": 10**3,
    "B": 1,
}
BINARY_UNITS = ("TiB", "GiB", "MiB", "KiB")

_DURATION_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(d|h|ms|m|us|ns|s)", re.ASCII)
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([KMGT]?I?B)?", re.ASCII | re.IGNORECASE)
_SIZE_BY_UPPER = {unit.upper(): size for unit, size in SIZE_BYTES.items()}


def parse_duration(text: str) -> float:
    """Seconds. Raises ValueError when `text` is not numbers with units `d h m s ms us ns`, such as `1h30m`."""
    if not _DURATION.fullmatch(text):
        raise ValueError(text)
    total_ns = sum(Decimal(number) * DURATION_NS[unit] for number, unit in _DURATION_PART.findall(text))
    return int(total_ns) / 1e9


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads back as the same number: 5400.0 is `1h30m`."""
    rest = round(seconds * 1e9)
    parts = []
    for unit, size in DURATION_NS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_size(text: str) -> int:
    """Bytes. Raises ValueError when `text` is not a number with an optional unit; `KB` is 1000, `KiB` 1024."""
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError(text)
    number, unit = match.groups()
    return int(Decimal(number) * _SIZE_BY_UPPER[(unit or "B").upper()])


def format_size(size_bytes: int) -> str:
    """In the largest binary unit that divides it evenly: 10737418240 is `10GiB`, 1000 is `1000`."""
    for unit in BINARY_UNITS:
        if size_bytes and size_bytes % SIZE_BYTES[unit] == 0:
            return f"{size_bytes // SIZE_BYTES[unit]}{unit}"
    return str(size_bytes)
