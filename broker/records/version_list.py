"""Which versions a workflow has: one document beside its latest definition, newest first. Pure.

It decides what the latest definition is, and that a workflow is deleted: what stands under the name follows it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.config.limits import VERSIONS_LISTED_MAX


class StoredVersion(Struct, frozen=True):
    """`version` is the label in the definition, `digest` names the definition, `registered_at` is when it last became
    the latest (RFC 3339)."""

    version: str
    digest: str
    registered_at: str


class VersionList(Struct, frozen=True, omit_defaults=True):
    """`versions` are newest first, each definition once, at most VERSIONS_LISTED_MAX. `deleted`: the workflow is not
    registered any more."""

    versions: tuple[StoredVersion, ...] = ()
    deleted: bool = False

    @property
    def latest(self) -> str | None:
        """The digest of the definition that new runs get."""
        return self.versions[0].digest if self.versions else None

    def has(self, digest: str) -> bool:
        return any(one.digest == digest for one in self.versions)

    def labelled(self, version: str) -> str | None:
        """The digest of the definition that was registered last under this label."""
        return next((one.digest for one in self.versions if one.version == version), None)

    def registered(self, version: StoredVersion) -> VersionList:
        """The list after this definition was registered: it is the newest, wherever it stood before."""
        others = () if self.deleted else tuple(one for one in self.versions if one.digest != version.digest)
        return VersionList((version, *others)[:VERSIONS_LISTED_MAX])

    def without_all(self) -> VersionList:
        """The list after the workflow was deleted."""
        return replace(self, versions=(), deleted=True)


_DECODER = msgspec.json.Decoder(VersionList)


def encode(versions: VersionList) -> bytes:
    return msgspec.json.encode(versions)


def decode(body: bytes) -> VersionList:
    """Raises msgspec.MsgspecError for what is none."""
    return _DECODER.decode(body)
