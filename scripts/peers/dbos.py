"""DBOS: a library in an application, with its tables in PostgreSQL, or in SQLite where that is not there."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from load.processes import descendants
from load.service import free_ports

from .packages import python_with, run
from .processes import listening, program, users
from .system import Running, Skipped, System

LIBRARY = "dbos==3.4.0"
ACCOUNTS = ("postgres", "nobody")
PROGRAMS = "/usr/lib/postgresql/*/bin"  # of Debian's package, which is not on the path


def postgresql() -> Path | None:
    """The folder of PostgreSQL's programs."""
    found = shutil.which("initdb")
    folders = sorted(Path("/").glob(PROGRAMS[1:]), reverse=True)
    return Path(found).resolve().parent if found else next(iter(folders), None)


@asynccontextmanager
async def start(directory: Path) -> AsyncIterator[Running]:
    """Users are threads of the application, and call its workflow as a function."""
    python = python_with("dbos", LIBRARY)
    async with (
        _database(directory) as (url, databases),
        users([python, "-m", "peers.dbos_program", url], directory / "application.log") as (load, application),
    ):
        yield Running(load, lambda: frozenset[int]().union(*map(descendants, (application.pid, *databases))))


SYSTEMS = (
    System(
        "DBOS",
        f"{LIBRARY}, "
        + ("PostgreSQL with its defaults, synced" if postgresql() else "SQLite, since PostgreSQL is not there")
        + "; workflow, steps and users in the one process of the application, nothing over HTTP",
        start,
    ),
)


@asynccontextmanager
async def _database(directory: Path) -> AsyncIterator[tuple[str, Sequence[int]]]:
    """Its address for DBOS, and its processes."""
    programs = postgresql()
    if programs is None:
        yield f"sqlite:///{directory / 'dbos.sqlite'}", ()
        return
    port, log = free_ports(1)[0], directory / "postgresql.log"
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as name:
        prefix = _account(Path(name))
        made = [f"{programs}/initdb", "-D", f"{name}/data", "-A", "trust", "-U", "bench", "--no-sync"]
        await asyncio.to_thread(run, [*prefix, *made])
        command = [f"{programs}/postgres", "-D", f"{name}/data", "-h", "127.0.0.1", "-p", str(port), "-k", name]
        async with program([*prefix, *command], log) as server:
            await listening(port, server, log)
            yield f"postgresql://bench@127.0.0.1:{port}/bench_dbos", (server.pid,)


def _account(directory: Path) -> Sequence[str]:
    """What a command begins with so that root does not run it, which PostgreSQL refuses: another account does, and owns
    the directory. It ends when we do, at once: that is what SIGINT is for it."""
    if os.geteuid() != 0:
        return ()
    known = {account.pw_name: account for account in pwd.getpwall()}
    account = next((known[name] for name in ACCOUNTS if name in known), None)
    if account is None or shutil.which("setpriv") is None:
        raise Skipped("PostgreSQL does not run as root, and no other account can be taken")
    os.chown(directory, account.pw_uid, account.pw_gid)
    return (
        "setpriv",
        f"--reuid={account.pw_uid}",
        f"--regid={account.pw_gid}",
        "--clear-groups",
        "--pdeathsig=INT",
        "--",
    )
