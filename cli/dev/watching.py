"""Which files are saved below a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread

import click

SUFFIXES = frozenset({".py", ".json", ".toml"})
GROUPED_MS = 50  # an editor writes one save in several operations
QUIET_MS = 10


def check_library() -> None:
    """Raises ClickException if the library that watches files is not installed."""
    try:
        import watchfiles  # noqa: F401 - an extra
    except ImportError as error:
        raise click.ClickException(
            "`penstock dev` watches files with the package watchfiles, which is not installed: "
            "pip install 'penstock[watch]'"
        ) from error


def watch(folder: Path, ignored: Sequence[Path], saved: Callable[[set[Path]], None], stop: Event) -> None:
    """Call `saved`, in another thread, with the code and data files below `folder` that were written or removed, until
    `stop`. Those below `ignored`, and in folders that hold no code of the user's (.git, .venv, node_modules, ...), are
    left out."""
    Thread(target=_watch, args=(folder, ignored, saved, stop), daemon=True, name="watch").start()


def _watch(folder: Path, ignored: Sequence[Path], saved: Callable[[set[Path]], None], stop: Event) -> None:
    import watchfiles

    known = watchfiles.DefaultFilter(ignore_paths=ignored)

    def is_ours(change: watchfiles.Change, path: str) -> bool:
        return Path(path).suffix in SUFFIXES and known(change, path)

    for changes in watchfiles.watch(
        folder, watch_filter=is_ours, debounce=GROUPED_MS, step=QUIET_MS, stop_event=stop, raise_interrupt=False
    ):
        saved({Path(path) for _, path in changes})
