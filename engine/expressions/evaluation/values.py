"""The values that expressions read, decoded from their JSON as far as they are read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from penstock.engine.expressions.evaluation.failures import EvaluationError

Root: TypeAlias = str | tuple[str, str]
"""A name (`input`), or the id of a step with `output` or `status`."""
Path: TypeAlias = tuple[str, ...]

MISSING: Final = object()
# From this size on, only what stands along a path is decoded: of 1 MiB, that takes 0.7 ms instead of 10.
BY_PATH_BYTES_MIN = 4096

KEPT_MAX, KEPT_BYTES_MAX = 4, 2 << 20

# By the identity of the JSON, which an entry holds, so that no other can get it.
_kept: OrderedDict[int, tuple[Raw, dict[str, Raw]]] = OrderedDict()

_keys = msgspec.json.Decoder(dict[str, Raw]).decode


class Values:
    """The values of one step, for any number of expressions: each is decoded at most once, when it is read.

    `run`, `input` and whatever else is in scope stand under their names; `steps` is a mapping from step id to a mapping
    with `output` and `status`. A value is plain Python, or Raw with its JSON.
    """

    __slots__ = ("_decoded", "_levels", "_names", "_parts")

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._decoded: dict[Root, Any] = {}
        self._parts: dict[tuple[Root, Path], Any] = {}
        self._levels: dict[tuple[Root, Path], dict[str, Raw] | None] = {}

    def given(self, root: Root) -> Any:
        """The value as it was given: Raw, or plain Python."""
        return self._names[root] if type(root) is str else self._names["steps"][root[0]][root[1]]

    def read(self, root: Root) -> Any:
        """All of the value. Raises EvaluationError if it cannot be decoded."""
        if root in self._decoded:
            return self._decoded[root]
        value = self.given(root)
        decoded = self._decoded[root] = _decoded(root, value) if type(value) is Raw else value
        return decoded

    def read_path(self, root: Root, path: Path) -> Any:
        """What stands at the end of the path of keys, with nothing else decoded; MISSING where that saves nothing, and
        where there is no such key: then `read` knows what is there."""
        if root in self._decoded:
            return MISSING
        if (root, path) in self._parts:
            return self._parts[root, path]
        part = self._part(root, path)
        if part is None:
            return MISSING
        decoded = self._parts[root, path] = _decoded(root, part)
        return decoded

    def has_path(self, root: Root, path: Path) -> bool | None:
        """Whether the last key of the path is there, with nothing decoded; None where only `read` knows."""
        keys = self._keys_at(root, path[:-1])
        return None if keys is None else path[-1] in keys

    def size(self, root: Root) -> int:
        """The bytes of the value's JSON; 0 for one that needs no decoding."""
        value = self.given(root)
        return memoryview(value).nbytes if type(value) is Raw else 0

    def size_at(self, root: Root, path: Path) -> int:
        """The bytes of JSON that are decoded to read the path."""
        part = self._part(root, path) if path else None
        return self.size(root) if part is None else memoryview(part).nbytes

    def _part(self, root: Root, path: Path) -> Raw | None:
        keys = self._keys_at(root, path[:-1])
        return None if keys is None else keys.get(path[-1])

    def _keys_at(self, root: Root, path: Path) -> dict[str, Raw] | None:
        """The keys of the object at the path, with their JSON; None if there is no object, or the value is small."""
        if (root, path) not in self._levels:
            is_large = bool(path) or self.size(root) >= BY_PATH_BYTES_MIN
            value = (self._part(root, path) if path else self.given(root)) if is_large else None
            self._levels[root, path] = None if value is None else _keys_of(value)
        return self._levels[root, path]


def _keys_of(value: Raw) -> dict[str, Raw] | None:
    """The keys of a large object. Those of the last few are kept: the elements of a map all read the same objects."""
    kept = _kept.get(id(value))
    if kept is not None and kept[0] is value:
        return kept[1]
    try:
        keys = _keys(value)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if BY_PATH_BYTES_MIN <= memoryview(value).nbytes <= KEPT_BYTES_MAX:
        _kept[id(value)] = value, keys
        while len(_kept) > KEPT_MAX:
            _kept.popitem(last=False)
    return keys


def _decoded(root: Root, value: Raw) -> Any:
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, RecursionError) as error:
        name = root if type(root) is str else f"steps.{root[0]}.{root[1]}"
        raise EvaluationError(f"{name} cannot be read: {error}") from error
