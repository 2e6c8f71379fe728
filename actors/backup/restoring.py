"""Make the streams of a backup again, at a broker that has none of them, and say where the service goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from penstock.actors.backup.manifest import (
    CopiedStream,
    Manifest,
    Reader,
    check_copies,
    copy_path,
    pieces,
    read_manifest,
)
from penstock.actors.backup.slots_held import SlotsHeld
from penstock.actors.backup.taking import existing_streams
from penstock.actors.backup.tasks_out import order_again
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.stream_copies import StreamCopy, restore_stream
from penstock.broker.records.owners import Claim
from penstock.broker.store import Store
from penstock.broker.streams.provisioning import provision
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict

OWNER = "restored"  # nobody: the next owner of a partition makes a consumer of its own

Say = Callable[[CopiedStream], object]


class Restored(Struct, frozen=True):
    """`tasks` is how many tasks were out when the backup was made: they are handed out again."""

    manifest: Manifest
    tasks: int


def read_backup(directory: Path) -> Manifest:
    """The description of a backup whose files are as they were written. Raises Invalid, Conflict."""
    manifest = read_manifest(directory)
    check_copies(directory, manifest)
    return manifest


async def restore_backup(
    store: Store, settings: BrokerSettings, directory: Path, manifest: Manifest, say: Say
) -> Restored:
    """Restore the backup; `say` is called for each stream. No engine may run before it returns.

    Raises Conflict, before anything is changed, for a broker that has streams of the service; Unavailable, ApiError.
    """
    if there := await existing_streams(store.broker, settings):
        raise Conflict(f"the broker already has {', '.join(there)}: a backup is restored to a broker without them")
    for copied in manifest.streams:
        config = {**copied.config, "num_replicas": settings.replicas}
        await restore_stream(store.broker, StreamCopy(config, copied.state), pieces(copy_path(directory, copied.name)))
        say(copied)
    await provision(store.broker, settings)
    for reader in manifest.readers:
        await _open(store.broker, reader)
    await _note_handled(store, manifest)
    slots = SlotsHeld(store)
    tasks = await order_again(store, slots.note)
    await slots.store_all()
    return Restored(manifest, tasks)


async def _open(broker: Broker, reader: Reader) -> None:
    config = {**reader.config, "deliver_policy": "by_start_sequence", "opt_start_seq": reader.start}
    request = {"stream_name": reader.stream, "config": config, "action": "create"}
    await broker.api(f"CONSUMER.CREATE.{reader.stream}.{config['durable_name']}", request)


async def _note_handled(store: Store, manifest: Manifest) -> None:
    """Note for the next owners where to go on."""
    log = (await store.history.tip()).created
    for partition, seq in list(manifest.handled.items()):
        await store.owners.claim(partition, Claim(OWNER, start=seq + 1, log=log), 0)
