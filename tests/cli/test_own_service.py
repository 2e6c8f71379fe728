"""A command's own service."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.demo import own_service as module
from penstock.cli.demo.own_service import own_service
from penstock.client import Client
from penstock.engine.errors import Unavailable


def test_a_port_that_another_service_takes_meanwhile_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with own_service(None) as first:
        taken = int(first.variables["SERVICE_URL"].rpartition(":")[2])
        offered = iter([taken, module._free_port()])
        given = module._free_port
        monkeypatch.setattr(module, "PORT_WANTED", taken)
        monkeypatch.setattr(module, "_free_port", lambda wanted=0: next(offered) if wanted else given())

        with own_service(None) as second, Client(second.variables["SERVICE_URL"]) as client:
            assert second.variables["SERVICE_URL"] != first.variables["SERVICE_URL"]
            assert client.broker().address == second.variables["SERVICE_BROKER_URL"]


def test_a_service_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")

    with pytest.raises(Unavailable, match=r"the service did not start:\n.*data"), own_service(None, tmp_path / "data"):
        pass
