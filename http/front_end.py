"""The front end as a child of the supervisor: gunicorn in this process, instead of in a program of its own.

Whoever imports this module has the whole front end, so that gunicorn and its workers share it once they are forked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import gunicorn.arbiter  # noqa: F401 - here and below: what is imported by itself, later
import uvicorn.lifespan.on
import uvicorn.loops.uvloop  # noqa: F401
from gunicorn.app.wsgiapp import WSGIApplication

import penstock.http.app
import penstock.http.server.worker  # noqa: F401 - gunicorn finds both by their names

ARGUMENTS = ("gunicorn", "-c", "python:penstock.config.gunicorn", "penstock.http.app:application")


def run_front_end(environ: Mapping[str, str]) -> None:
    """Serve until SIGTERM; `environ` has the settings, as if gunicorn had been started with it."""
    os.environ.update(environ)
    sys.argv[:] = ARGUMENTS
    WSGIApplication("%(prog)s [OPTIONS] [APP_MODULE]", prog=ARGUMENTS[0]).run()
