"""The front end's connection and what runs beside it: the trouble of one is not the other's."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.actors.index.file import index_path
from penstock.actors.index.run_index import RunIndex
from penstock.config.process.background import FAILURES
from penstock.config.settings import BrokerSettings, Settings
from penstock.http import backend
from penstock.http.app import create_app
from tests.support.conductor import Conductor
from tests.support.waiting import until_true


async def test_a_data_directory_that_cannot_be_written_costs_the_front_end_only_its_index(
    broker_settings: BrokerSettings, definitions: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "FOLLOW_AFTER_S", 0.01)
    failures_before = FAILURES["run_index"]
    in_the_way = tmp_path / "data"
    in_the_way.write_text("a file where a directory should be")
    settings = replace(broker_settings, data_dir=in_the_way)

    async with Conductor(create_app(Settings(broker=settings))) as http:
        await until_true(lambda: FAILURES["run_index"] > failures_before)
        assert (await http.get("/workflows/one")).status_code == 200

        in_the_way.unlink()
        index = RunIndex(index_path(in_the_way))
        await until_true(index.alive)
        index.close()
