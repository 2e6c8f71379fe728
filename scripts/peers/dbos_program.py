"""An application with DBOS in it, and its users: `python -m peers.dbos_program DATABASE_URL SOCKET`, in the folder
scripts/."""

from __future__ import annotations

import asyncio
import sys

from dbos import DBOS, DBOSConfig

from peers.users import load_in_threads, serve

INPUT = {"n": 1}


@DBOS.step()
def echo(value: object) -> object:
    return value


@DBOS.workflow()
def chain(value: object) -> object:
    return echo(echo(echo(value)))


async def load(users: int, seconds: float) -> list[float]:
    """Users in threads of the application itself, as an application calls its workflows."""
    return await asyncio.to_thread(load_in_threads, lambda: chain(INPUT), users, seconds)


def main() -> None:
    """Until the socket is closed."""
    config: DBOSConfig = {"name": "bench", "system_database_url": sys.argv[1], "log_level": "WARNING"}
    DBOS(config=config)
    DBOS.launch()
    asyncio.run(serve(load))
    DBOS.destroy()


if __name__ == "__main__":
    main()
