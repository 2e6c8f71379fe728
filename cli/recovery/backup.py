"""`penstock backup` and `penstock restore`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from penstock.actors.backup.manifest import CopiedStream, Manifest
from penstock.actors.backup.restoring import Restored, read_backup, restore_backup
from penstock.actors.backup.taking import take_backup
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.store import open_store
from penstock.cli.terminal import output
from penstock.cli.terminal.options import settings_options
from penstock.cli.terminal.session import JsonCommand
from penstock.config.settings import BrokerSettings, load

DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))


@click.command(cls=JsonCommand)
@DIRECTORY
@settings_options
def backup(directory: Path, flags: dict[str, str], config: Path | None) -> None:
    """Copy everything that the service stores into DIR, while it runs.

    DIR must be empty or not there yet. Needs the settings of the broker, as `penstock engine` does.
    """
    made = asyncio.run(_taken(load(flags, file=config).settings.broker, directory))
    total = sum(copied.bytes for copied in made.streams)
    output.show(made, lambda: click.echo(f"{directory}: {len(made.streams)} streams, {total} bytes, complete"))


async def _taken(settings: BrokerSettings, directory: Path) -> Manifest:
    async with open_store(settings, "backup") as store:
        return await take_backup(store, settings, directory, _say)


@click.command(cls=JsonCommand)
@DIRECTORY
@settings_options
def restore(directory: Path, flags: dict[str, str], config: Path | None) -> None:
    """Restore a backup from DIR, into an empty data directory or a broker that has nothing of the service.

    The service must not run. With an embedded broker the directory is that of the setting data_dir.
    """
    settings = load(flags, file=config).settings.broker
    manifest = read_backup(directory)
    with _broker(settings):
        restored = asyncio.run(_restored(settings, directory, manifest))
    output.show(restored, lambda: click.echo(_summary(restored)))


@contextmanager
def _broker(settings: BrokerSettings) -> Iterator[None]:
    """The broker that the backup is restored to runs during the block."""
    if settings.url:
        yield
        return
    broker = EmbeddedBroker(settings)
    with broker.data.restoring():
        try:
            broker.start()
            yield
        finally:
            broker.stop()


async def _restored(settings: BrokerSettings, directory: Path, manifest: Manifest) -> Restored:
    async with open_store(settings, "restore") as store:
        return await restore_backup(store, settings, directory, manifest, _say)


def _say(copied: CopiedStream) -> None:
    click.echo(f"{copied.name}: {copied.messages} messages, {copied.bytes} bytes", err=True)


def _summary(restored: Restored) -> str:
    made_at = restored.manifest.created_at
    return f"restored the backup of {made_at}; {restored.tasks} tasks that were out are handed out again"
