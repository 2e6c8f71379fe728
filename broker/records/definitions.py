"""Stored definitions: the latest under its name, and every version for ever under name and digest; and the list of a
workflow's versions, which decides which is the latest.

A change is made to the list first, by compare-and-swap. What stands under the name is made to follow it, by whoever
changed the list, and again by the next one if that process died: so of several that register and delete at once, the
last one in the list counts.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct

from penstock.broker import record_keys
from penstock.broker.nats.buckets import Bucket, Entry
from penstock.broker.records.version_list import StoredVersion, VersionList, decode, encode
from penstock.config.logging import get_logger
from penstock.config.process.background import both
from penstock.config.process.crash_points import reached
from penstock.engine.definition.definitions import WorkflowDef, digest, from_json, to_json
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Conflict, NeedsUpgrade, NotFound, Unavailable
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.workflow import Workflow
from penstock.engine.times import rfc3339

TRIES_MAX = 20
COMPILED_STEPS_MAX = 50_000  # of all compiled versions together

log = get_logger()


class _Labelled(Struct, frozen=True):
    version: str = "1"


class _State(Struct, frozen=True):
    """What is stored of a workflow: the list of its versions with its revision, and what stands under the name."""

    name: str
    versions: VersionList
    revision: int
    latest: Entry | None
    latest_revision: int

    def is_latest(self, found: str) -> bool:
        """Whether nothing is left to do for the definition of this digest to be the latest one."""
        return self.versions.latest == found and self.latest is not None and digest(self.latest.value) == found


class Definitions:
    """The workflow_defs bucket. Compiled versions are cached: the definition of a digest never changes."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._compiled: dict[str, Workflow] = {}
        self._steps = 0

    async def register(self, definition: WorkflowDef) -> str:
        """Store a definition and make it the latest of its name; returns its digest."""
        name, body = definition.name, to_json(definition)
        found = digest(body)
        state = await self._read(name)
        if state.is_latest(found):
            return found
        await self._bucket.put(record_keys.definition_key(name, found), body)  # first: no list may name a missing one
        reached("definition.stored")
        registered = StoredVersion(definition.version, found, rfc3339(time.time()))
        await self._change(state, lambda state: state.versions.registered(registered))
        reached("definition.listed")
        await self._settle(name, {found: body})
        return found

    async def delete(self, name: str, check: Callable[[], Awaitable[None]] | None = None) -> None:
        """Forget that the workflow was ever registered; its definitions stay for the runs that have them.

        `check` raises what stands against it. It is called again if somebody has changed or confirmed the workflow
        since the last time. Raises NotFound, Unavailable (repeat it).
        """
        await self._change(await self._read(name), _deleted, check)
        reached("definition.unlisted")
        await self._settle(name, {})

    async def confirm(self, name: str) -> None:
        """Check that the workflow is registered, now that something that needs it can be seen. Raises NotFound,
        Unavailable.

        The list gets another revision, so a deletion that was checked before must be checked again. It does not matter
        whose change that is: each one is later than what can be seen.
        """
        state = await self._read(name)
        try:
            await self._bucket.put(record_keys.versions_key(name), encode(_confirmed(state)), state.revision)
        except Conflict:
            _confirmed(await self._read(name))

    async def versions(self, name: str) -> tuple[StoredVersion, ...]:
        """The versions of a registered workflow, newest first. Raises NotFound."""
        state = await self._read(name)
        if state.latest is None:
            raise _not_registered(name)
        # A deletion that was interrupted has emptied the list, and left the workflow as it is.
        return state.versions.versions or (_version(state.latest, digest(state.latest.value)),)

    async def version(self, name: str, version: str) -> tuple[WorkflowDef, str]:
        """The definition that was registered last under this label, and its digest. Raises NotFound, NeedsUpgrade."""
        found = VersionList(await self.versions(name)).labelled(version)
        entry = None if found is None else await self._bucket.get(record_keys.definition_key(name, found))
        if found is None or entry is None:
            raise NotFound(f'workflow "{name}" has no version {quoted(version)}')
        return from_json(entry.value), found

    async def exact(self, name: str, digest: str) -> WorkflowDef:
        """The definition that a run has. Raises NotFound, NeedsUpgrade."""
        entry = await self._bucket.get(record_keys.definition_key(name, digest))
        if entry is None:
            raise NotFound(f'workflow "{name}" has no version {digest}')
        return from_json(entry.value)

    async def latest(self, name: str) -> tuple[WorkflowDef, str]:
        """The latest definition of a name and its digest. Raises NotFound, NeedsUpgrade."""
        entry = await self._bucket.get(name)
        if entry is None:
            raise _not_registered(name)
        return from_json(entry.value), digest(entry.value)

    async def missing(self, wanted: Collection[str]) -> set[str]:
        """Those of these workflows that are not registered."""
        return set(wanted) - (await self._bucket.get_many([*wanted])).keys() if wanted else set()

    async def is_latest(self, name: str, known: str) -> bool:
        """Whether the version of digest `known`, which was read before, is still the latest, in case a change
        notification is late.

        A single broker sends notifications in time: there it returns True without a request.
        """
        if not await self._bucket.has_copies():
            return True
        entry = await self._bucket.get(name)
        return entry is not None and digest(entry.value) == known

    async def all(self) -> list[WorkflowDef]:
        """The latest definition of every name, by name, without those that need an upgrade to be read."""
        entries = await self._bucket.all()
        found = [_readable(entry) for entry in sorted(entries, key=lambda e: e.key) if "/" not in entry.key]
        return [definition for definition in found if definition is not None]

    def compiled(self, digest: str) -> Workflow | None:
        """The compiled version of a run, if it is in the cache."""
        return self._compiled.get(digest)

    async def load(self, name: str, digest: str) -> Workflow:
        """The compiled version of a run. Raises NotFound, NeedsUpgrade."""
        found = self._compiled.get(digest)
        if found is None:
            found = compile_workflow(await self.exact(name, digest), digest)
            self._keep(digest, found)
        return found

    def _keep(self, digest: str, workflow: Workflow) -> None:
        """Add it to the cache. The oldest entries are removed when there are too many: runs in memory have their own
        reference."""
        self._compiled[digest] = workflow
        self._steps += len(workflow.steps)
        while self._steps > COMPILED_STEPS_MAX and len(self._compiled) > 1:
            self._steps -= len(self._compiled.pop(next(iter(self._compiled))).steps)

    async def on_change(self, callback: Callable[[str], Awaitable[None]]) -> None:
        """Call `await callback(name)` when a name gets another latest definition. Notifications may be missed."""
        await self._bucket.on_change(">", callback)

    async def _read(self, name: str) -> _State:
        """The list and the latest definition as they are now. An older version of the service writes no list: what it
        has registered is added here."""
        (listed, revision), (latest, at) = await both(
            self._bucket.find(record_keys.versions_key(name)), self._bucket.find(name)
        )
        versions = None if listed is None else _decoded(listed)
        if versions is None and latest is not None:
            versions = (await self._registered_before(name)).registered(_version(latest, digest(latest.value)))
        elif versions is not None and latest is not None and not versions.deleted:
            found = digest(latest.value)
            versions = versions if versions.has(found) else versions.registered(_version(latest, found))
        return _State(name, versions or VersionList(), revision, latest, at)

    async def _registered_before(self, name: str) -> VersionList:
        """The list of a workflow that was registered when there were no lists."""
        keys = await self._bucket.keys(record_keys.definition_keys(name))
        found = await self._bucket.get_many([key for key in keys if key.startswith(f"{name}/")])
        entries = sorted(found.values(), key=lambda entry: entry.revision)
        versions = VersionList()
        for entry in entries:
            if entry.key != record_keys.versions_key(name):
                versions = versions.registered(_version(entry, entry.key.rpartition("/")[2]))
        return versions

    async def _change(
        self,
        state: _State,
        change: Callable[[_State], VersionList],
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Change the list as it was read, or as others have changed it since. `check` is called after each read."""
        for _ in range(TRIES_MAX):
            if check is not None:
                await check()
            try:
                await self._bucket.put(record_keys.versions_key(state.name), encode(change(state)), state.revision)
                return
            except Conflict:
                state = await self._read(state.name)
        raise Unavailable(f'workflow "{state.name}" is being changed by too many at once')

    async def _settle(self, name: str, known: Mapping[str, bytes]) -> None:
        """Have the name say what the list says. Can be repeated, and done by several at once. `known` are definitions
        by their digests."""
        for _ in range(TRIES_MAX):
            listed, (latest, revision) = await both(
                self._bucket.get(record_keys.versions_key(name)), self._bucket.find(name)
            )
            versions = None if listed is None else _decoded(listed)
            if versions is None or versions.latest == (None if latest is None else digest(latest.value)):
                return
            with suppress(Conflict):
                await self._point(name, versions.latest, revision, known)
        raise Unavailable(f'workflow "{name}" is being changed by too many at once')

    async def _point(self, name: str, wanted: str | None, revision: int, known: Mapping[str, bytes]) -> None:
        """Put the definition of this digest under the name, or nothing. Raises Conflict when that was changed."""
        if wanted is None:
            await self._bucket.delete(name, revision)
            return
        body = known.get(wanted)
        if body is None:
            entry = await self._bucket.get(record_keys.definition_key(name, wanted))
            assert entry is not None, "it was stored before it was listed"
            body = entry.value
        await self._bucket.put(name, body, revision)


def _deleted(state: _State) -> VersionList:
    """Raises NotFound for what is deleted already, and for what never was."""
    if state.latest is None and not state.versions.versions:
        raise _not_registered(state.name)
    return state.versions.without_all()


def _confirmed(state: _State) -> VersionList:
    """The list as it is; it gets another revision. Raises NotFound for a workflow that is deleted, also if the deletion
    is not finished, or never was registered."""
    if state.latest is None or state.versions.deleted:
        raise _not_registered(state.name)
    return state.versions


def _not_registered(name: str) -> NotFound:
    return NotFound(f'workflow "{name}" is not registered')


def _decoded(entry: Entry) -> VersionList | None:
    """What somebody else has written there is as good as nothing."""
    try:
        return decode(entry.value)
    except msgspec.MsgspecError as error:
        log.error("version_list_unreadable", key=entry.key, error=str(error))
        return None


def _version(entry: Entry, found: str) -> StoredVersion:
    """That of a stored definition, registered when it was written."""
    return StoredVersion(msgspec.json.decode(entry.value, type=_Labelled).version, found, rfc3339(entry.at))


def _readable(entry: Entry) -> WorkflowDef | None:
    try:
        return from_json(entry.value)
    except NeedsUpgrade as error:
        log.warning("definition_left_out", key=entry.key, reason=str(error))
        return None
