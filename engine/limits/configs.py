"""What is said of a limit beforehand: what definitions register, what a person overrides, and which of these counts.

One document for each kind and scope, whatever the keys. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.config.limits import LIMIT_OVERRIDES_MAX, LIMIT_WORKFLOWS_MAX
from penstock.engine.errors import Conflict
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Allowed


class RegisteredLimit(Struct, frozen=True, omit_defaults=True):
    """What the definition of a workflow allows, of a step of it unless `step_id` is None; `at` is RFC 3339."""

    workflow: str
    version: str
    allowed: Allowed
    step_id: str | None = None
    at: str = ""

    def same(self, other: RegisteredLimit) -> bool:
        """Whether nothing differs but when it was registered."""
        return replace(self, at="") == replace(other, at="")


class LimitOverride(Struct, frozen=True, omit_defaults=True):
    """What counts instead, until it is taken back. `by` is the name of the key of who set it; `at` is RFC 3339."""

    allowed: Allowed
    at: str
    by: str | None = None


class LimitConfig(Struct, frozen=True, omit_defaults=True):
    """All limits of one kind and scope.

    `registered` has one entry for each workflow, the newest first, which is the one that counts. `override` is for all
    keys, also those to come, and `keys` has those for one key each, which count before it.
    """

    kind: LimitKind
    scope: str
    registered: tuple[RegisteredLimit, ...] = ()
    override: LimitOverride | None = None
    keys: dict[str, LimitOverride] = {}

    @property
    def empty(self) -> bool:
        return not (self.registered or self.override or self.keys)

    def override_of(self, key: str | None) -> LimitOverride | None:
        """The one that counts for the key, if any."""
        return self.keys.get(key, self.override) if key is not None else self.override

    def others(self, workflow: str) -> tuple[RegisteredLimit, ...]:
        """What other workflows have registered, newest first."""
        return tuple(one for one in self.registered if one.workflow != workflow)

    def with_registered(self, new: RegisteredLimit) -> LimitConfig:
        """As registered last. The same object if nothing changes."""
        if self.registered and self.registered[0].same(new):
            return self
        return replace(self, registered=(new, *self.others(new.workflow))[:LIMIT_WORKFLOWS_MAX])

    def without(self, workflow: str) -> LimitConfig:
        """After the workflow names the limit no more. The same object if it did not."""
        others = self.others(workflow)
        return self if len(others) == len(self.registered) else replace(self, registered=others)

    def with_override(self, key: str | None, override: LimitOverride) -> LimitConfig:
        """Raises Conflict for too many keys."""
        if key is None:
            return replace(self, override=override)
        if key not in self.keys and len(self.keys) >= LIMIT_OVERRIDES_MAX:
            raise Conflict(
                f"{LIMIT_OVERRIDES_MAX} keys of this scope have an override, and that is the most: reset one"
            )
        return replace(self, keys={**self.keys, key: override})

    def without_override(self, key: str | None) -> LimitConfig:
        """The same object if there was none."""
        if key is None:
            return self if self.override is None else replace(self, override=None)
        if key not in self.keys:
            return self
        return replace(self, keys={one: found for one, found in self.keys.items() if one != key})


Configs = Mapping[tuple[LimitKind, str], LimitConfig]
"""By kind and scope."""


def allowed_now(configs: Configs, name: LimitName, asked: Allowed) -> Allowed:
    """What the limit allows: an override of its key, of its scope, what was registered last, or else what is asked
    for."""
    config = configs.get((name.kind, name.scope))
    if config is None:
        return asked
    override = config.override_of(name.key)
    if override is not None:
        return override.allowed
    return config.registered[0].allowed if config.registered else asked


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(LimitConfig)


def encode(config: LimitConfig) -> bytes:
    """The stored form."""
    return _ENCODER.encode(config)


def decode(body: bytes) -> LimitConfig:
    """Raises msgspec.MsgspecError for what is none."""
    return _DECODER.decode(body)
