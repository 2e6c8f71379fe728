"""The description of a backup, in its directory beside the copies of the streams. A backup without one is not whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, Struct

from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Conflict, Invalid

FILE = "backup.json"
FORMAT = 1
PIECE_BYTES = 128 * 1024


class CopiedStream(Struct, frozen=True):
    """The copy of one stream, in the file `<name>.copy`; `config` and `state` as the broker has given them."""

    name: Annotated[str, Meta(pattern=r"^[^/\\.\s]+$")]
    sha256: str
    bytes: int
    messages: int
    config: dict[str, Any]
    state: dict[str, Any]


class Reader(Struct, frozen=True):
    """A durable consumer of a copied stream, for triggers: everything before the sequence `start` is handled."""

    stream: str
    start: int
    config: dict[str, Any]


class Manifest(Struct, frozen=True, kw_only=True):
    """`created_at` is RFC 3339. `handled` says for each partition of the history up to which sequence everything is
    handled."""

    format: int = FORMAT
    version: str
    created_at: str
    handled: dict[int, int]
    streams: tuple[CopiedStream, ...]
    readers: tuple[Reader, ...] = ()


class CopyFile:
    """The file of a copy while it is written; `bytes` and `sha256` are of what it has so far. It is on the disk when
    the block has ended."""

    def __init__(self, path: Path) -> None:
        self._file, self._digest = open(path, "xb", opener=_private), sha256()  # noqa: SIM115
        self.bytes = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self._digest.update(piece)
        self.bytes += len(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def copy_path(directory: Path, stream: str) -> Path:
    return directory / f"{stream}.copy"


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write it as the last file of a backup, at once and durably."""
    partial = directory / f"{FILE}.partial"
    with open(partial, "wb", opener=_private) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)))
        file.flush()
        os.fsync(file.fileno())
    partial.rename(directory / FILE)


def read_manifest(directory: Path) -> Manifest:
    """Raises Invalid for a directory without a whole backup, Conflict for one that a newer version has made."""
    try:
        body = (directory / FILE).read_bytes()
    except FileNotFoundError as error:
        raise Invalid(f"{directory} has no {FILE}: it is no backup, or the backup was broken off") from error
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except msgspec.MsgspecError as error:
        raise Invalid(f"{directory / FILE} cannot be read: {error}") from error
    if manifest.format > FORMAT:
        raise Conflict(f"the backup was made by penstock {manifest.version}: restore it with that version")
    return manifest


def check_copies(directory: Path, manifest: Manifest) -> None:
    """Raises Invalid that names every copy that is missing or not as it was written."""
    problems = [problem for copied in manifest.streams if (problem := _problem(directory, copied))]
    if problems:
        raise Invalid("\n".join(problems))


def _problem(directory: Path, copied: CopiedStream) -> str | None:
    path = copy_path(directory, copied.name)
    if not path.exists():
        return f"{path} is missing"
    digest = sha256()
    for piece in pieces(path):
        digest.update(piece)
    found, expected = digest.hexdigest(), copied.sha256
    return None if found == expected else f"{path} is not as it was written: {quoted(copied.name)}"


def pieces(path: Path) -> Iterator[bytes]:
    """A copy in pieces that fit a message."""
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
