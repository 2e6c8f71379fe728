"""Make a backup of a service while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from penstock.actors.backup.contents import in_order
from penstock.actors.backup.manifest import (
    CopiedStream,
    CopyFile,
    Manifest,
    Reader,
    copy_path,
    write_manifest,
)
from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.stream_copies import copy_stream
from penstock.broker.store import Store
from penstock.broker.streams.provisioning import streams
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, Invalid
from penstock.engine.times import rfc3339

Say = Callable[[CopiedStream], object]


async def take_backup(store: Store, settings: BrokerSettings, directory: Path, say: Say) -> Manifest:
    """Copy everything into the directory, which must be empty or not there yet; `say` is called for each stream.

    Raises Conflict for a directory that is not empty, Invalid for one that cannot be written, Unavailable.
    """
    _make_empty(directory)
    handled = await _handled(store)
    copying = in_order(await existing_streams(store.broker, settings))
    readers = [reader for stream in copying if stream != names.HISTORY for reader in await _readers(store, stream)]
    copied = []
    for stream in copying:
        copied.append(await _copy(store.broker, stream, directory))
        say(copied[-1])
    manifest = Manifest(
        version=version("penstock"),
        created_at=rfc3339(time.time()),
        handled=handled,
        streams=tuple(copied),
        readers=tuple(readers),
    )
    write_manifest(directory, manifest)
    return manifest


def _make_empty(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(directory.iterdir()):
            raise Conflict(f"{directory} is not empty: a backup needs a directory of its own")
    except OSError as error:
        raise Invalid(f"{directory} cannot be written: {error.strerror}") from error


async def _handled(store: Store) -> dict[int, int]:
    """Up to which sequence everything is handled, by partition."""
    view, log = await store.owners.read(), (await store.history.tip()).created
    return {partition: view.handled_before(partition, log) - 1 for partition in view.claims}


async def existing_streams(broker: Broker, settings: BrokerSettings) -> list[str]:
    """Our streams that are there, and those that keep messages for triggers."""
    ours, offset, found = {one["name"] for one in streams(settings)}, 0, list[str]()
    while True:
        page = (await broker.api("STREAM.NAMES", {"offset": offset})).get("streams") or []
        found += [stream for stream in page if stream in ours or stream.startswith(names.CAPTURE_PREFIX)]
        offset += len(page)
        if not page:
            return found


async def _readers(store: Store, stream: str) -> list[Reader]:
    """The durable consumers of a stream, and what they have handled."""
    found, offset = list[Reader](), 0
    while True:
        page = (await store.broker.api(f"CONSUMER.LIST.{stream}", {"offset": offset})).get("consumers") or []
        found += [_reader(stream, one) for one in page if one["config"].get("durable_name")]
        offset += len(page)
        if not page:
            return found


def _reader(stream: str, info: dict[str, Any]) -> Reader:
    return Reader(stream, int(info["ack_floor"]["stream_seq"]) + 1, info["config"])


async def _copy(broker: Broker, stream: str, directory: Path) -> CopiedStream:
    with CopyFile(copy_path(directory, stream)) as file:
        copy = await copy_stream(broker, stream, file.write)
    return CopiedStream(stream, file.sha256, file.bytes, int(copy.state["messages"]), copy.config, copy.state)
