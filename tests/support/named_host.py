"""`penstock`, on a machine of another name: `NAMED_HOST=a python -m tests.support.named_host engine`.

Its child processes import this module, too, before they do anything.
"""

from __future__ import annotations

import os
import socket

from penstock.cli.main import main

socket.gethostname = lambda: os.environ["NAMED_HOST"]

if __name__ == "__main__":
    main()
