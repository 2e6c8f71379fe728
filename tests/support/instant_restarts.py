"""`penstock` whose supervisor restarts a dead process at once, however often it dies.

Start it as `python -m tests.support.instant_restarts serve …`.
"""

from __future__ import annotations

from penstock.actors.processes import supervisor
from penstock.cli.main import main

if __name__ == "__main__":
    supervisor.BACKOFF_S_MAX = 0.0
    main()
