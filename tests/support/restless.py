"""`penstock`, but what dies is started again at once, however often it dies: `python -m tests.support.restless serve
…`"""

from __future__ import annotations

from penstock.actors.processes import supervisor
from penstock.cli.main import main

if __name__ == "__main__":
    supervisor.BACKOFF_S_MAX = 0.0
    main()
