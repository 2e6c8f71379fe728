"""Recorded histories must for ever fold to the state that they were recorded with: old logs are read by new engines.

To record a new one: describe a run in scenarios.py, and `python -m tests.properties.recording <name>` has a real
service carry it out. What no service does on demand (repeats, late events) is written by hand: `golden/<version in
setup.cfg>/<name>.json` with `about`, `definition` and `records` (the events of a run's history as they are on the wire,
each with its sequence and the time of its storing); then `python -m tests.properties.recorded <file>` adds the
snapshot, and what follows from each event. Read it before it is committed. A file whose test fails is not
recorded again: the engine is put right. With a release, `python -m tests.properties.recorded --release <version>` seals
its folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Raw

from penstock.broker.records.event_waits import WaitRecord
from penstock.broker.records.leases import Lease
from penstock.broker.records.owners import Claim, Member
from penstock.broker.records.version_list import VersionList
from penstock.broker.triggers.triggers import Progress, StoredTrigger
from penstock.broker.worker_messages import TaskPayload, WorkerRegistration
from penstock.engine.definition.definitions import WorkflowDef, from_json, to_json
from penstock.engine.run.events import Event, decode
from penstock.engine.run.kinds import table as step_kinds
from penstock.engine.run.state import from_snapshot, to_snapshot
from penstock.engine.validation import problems
from tests.properties.recorded import (
    DOCUMENTS,
    FOLDER,
    MISSING,
    SEAL,
    Sealed,
    current,
    folded,
    followed,
    histories,
    read,
    record,
    release,
    released,
    seal,
    snapshot,
    states,
    written,
)
from tests.properties.scenarios import SCENARIOS

DEFINITIONS = ("definition", "definition_of_kinds")
ROOT = Path(__file__).parents[2]
FILES = histories()
golden = pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
versions = pytest.mark.parametrize(
    "folder", sorted(path for path in FOLDER.iterdir() if path.is_dir()), ids=lambda folder: folder.name
)

# What is stored besides histories and snapshots, or handed from one process to another of perhaps another version.
KINDS: Mapping[str, type[msgspec.Struct]] = {
    "trigger": StoredTrigger,
    "progress": Progress,
    "task": TaskPayload,
    "lease": Lease,
    "worker": WorkerRegistration,
    "member": Member,
    "claim": Claim,
    "event_wait": WaitRecord,
    "versions": VersionList,
    "route": StoredTrigger,
    "planner_task": TaskPayload,
    "element_task": TaskPayload,
}


@golden
def test_a_recorded_history_folds_to_its_recorded_state(path: Path) -> None:
    history = read(path)
    assert history.snapshot != MISSING, "it has no snapshot yet: record it"
    assert snapshot(history) == bytes(history.snapshot)


@golden
def test_each_event_of_a_recorded_history_brings_about_what_it_did(path: Path) -> None:
    history = read(path)
    assert followed(history) == history.records


@golden
def test_a_recorded_snapshot_is_still_read(path: Path) -> None:
    history = read(path)
    assert from_snapshot(bytes(history.snapshot)) == folded(history)


@golden
def test_every_prefix_of_a_recorded_history_has_a_snapshot_that_is_read_back(path: Path) -> None:
    prefixes = list(states(read(path)))
    assert [run and from_snapshot(to_snapshot(run)) for run in prefixes] == prefixes


@golden
def test_a_recording_is_kept_as_it_would_be_written(path: Path) -> None:
    assert path.read_bytes() == written(read(path))


@versions
def test_each_version_has_recordings_of_everything(folder: Path) -> None:
    assert len(histories(folder.parent)) >= 15
    assert {*KINDS, *DEFINITIONS} == set(msgspec.json.decode((folder / DOCUMENTS).read_bytes()))


def test_the_version_that_is_worked_on_has_each_kind_of_step_and_of_event() -> None:
    found = [read(path) for path in (FOLDER / current()).glob("*.json") if path.name != DOCUMENTS]
    events = {type(decode(bytes(stored.event))) for history in found for stored in history.records}
    assert {*get_args(Event)} == events
    assert {*step_kinds.KINDS} == {kind for history in found for kind in _kinds(history.definition["steps"])}


def test_each_scenario_has_a_recording_of_a_definition_that_is_still_valid() -> None:
    recorded = {path.stem: read(path) for path in FILES if path.parent.name == current()}
    wanted = {*SCENARIOS, *(name for scenario in SCENARIOS.values() for _, name, _ in scenario.runs)}
    assert wanted <= recorded.keys()
    assert {name: [] for name in wanted} == {name: problems(recorded[name].definition) for name in wanted}


def _kinds(steps: Any) -> Iterator[str]:
    return (step.get("type", "normal") for step in steps)


@versions
@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_document_is_read_with_all_that_is_in_it(folder: Path, kind: str) -> None:
    recorded = msgspec.json.decode((folder / DOCUMENTS).read_bytes())[kind]
    found = msgspec.json.decode(msgspec.json.encode(recorded), type=KINDS[kind])
    assert recorded == msgspec.json.decode(msgspec.json.encode(found))


@versions
@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_recorded_definition_keeps_its_very_bytes_and_so_its_digest(folder: Path, name: str) -> None:
    stored = msgspec.json.decode((folder / DOCUMENTS).read_bytes(), type=dict[str, Raw])[name]
    definition: WorkflowDef = from_json(bytes(stored))
    assert bytes(stored) == to_json(definition)


def test_every_released_version_is_sealed_and_as_it_was() -> None:
    names = set(released((ROOT / "CHANGELOG.md").read_text()))
    sealed = {path.parent.name: path for path in FOLDER.glob(f"*/{SEAL}")}
    assert names <= set(sealed), "seal them: python -m tests.properties.recorded --release <version>"
    assert {} == {name: "changed" for name, path in sealed.items() if path.read_text().strip() != seal(path.parent)}


def test_only_the_version_that_is_worked_on_takes_recordings() -> None:
    open_ones = {path.name for path in FOLDER.iterdir() if path.is_dir() and not (path / SEAL).exists()}
    assert open_ones <= {current()}


def test_recording_again_changes_nothing(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_bytes(written(msgspec.structs.replace(read(FILES[0]), snapshot=Raw(b'{"status":"wrong"}'))))
    before = wrong.read_bytes()
    assert not record(wrong)
    assert wrong.read_bytes() == before


def test_a_release_takes_over_what_the_version_before_had_and_can_be_done_once(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "0.1.0", tmp_path / "0.1.0")
    for version in ("0.1.0", "0.9.0", "0.10.0"):
        if not (tmp_path / version / SEAL).exists():
            release(version, tmp_path)
        with pytest.raises(Sealed):
            release(version, tmp_path)
    names = {path.name for path in (tmp_path / "0.1.0").iterdir()}
    assert names == {path.name for path in (tmp_path / "0.10.0").iterdir()}
    assert (tmp_path / "0.10.0" / SEAL).read_text().strip() == seal(tmp_path / "0.10.0")


def test_a_sealed_folder_takes_no_recording_and_shows_every_change(tmp_path: Path) -> None:
    folder = tmp_path / "0.2.0"
    folder.mkdir()
    path = folder / FILES[0].name
    path.write_bytes(FILES[0].read_bytes())
    before = seal(folder)
    release("0.2.0", tmp_path)
    with pytest.raises(Sealed):
        record(path)
    path.write_bytes(path.read_bytes() + b"\n")
    assert before != seal(folder)
    path.rename(folder / "other.json")
    assert before != seal(folder)


def test_a_version_is_released_when_it_has_a_date() -> None:
    changelog = "## [Unreleased]\n## [0.2.0] - 2027-01-31\n### Added\n## [0.1.0] - unreleased\n"
    assert ["0.2.0"] == released(changelog)
