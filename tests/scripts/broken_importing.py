"""What a storm might leave behind of runs that are imported: what is good, and what breaks a promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chaos_parts.evidence import Evidence
from chaos_parts.ledger import Import
from chaos_parts.workflows import BRIEF

from tests.scripts.broken_promises import BRIEFLY, OTHER, RUN, evidence, keyed

DOCUMENT = {"run_id": OTHER, "definition": {}, "events": [{"type": "workflow.started", "seq": 1}]}


def imported(asked: Import, found: Mapping[str, Any], listed: Sequence[str] | None = None, **more: Any) -> Evidence:
    """RUN is there, and OTHER was to be imported."""
    listed = [*found] if listed is None else listed
    ledger = keyed(imports={OTHER: asked})
    return evidence(BRIEF, *BRIEFLY, ledger=ledger, imports=dict(found), listed_imports=listed, **more)


def good_import() -> Evidence:
    """Of two at the same time, one was refused."""
    return imported(Import(DOCUMENT, asked=2, stored=True, refused=1), {OTHER: DOCUMENT})


def good_import_in_doubt() -> Evidence:
    """The answer of the first try was lost, and the second one found the run there."""
    return imported(Import(DOCUMENT, asked=1, refused=1, doubted=True), {OTHER: DOCUMENT})


def good_import_without_an_answer() -> Evidence:
    return imported(Import(DOCUMENT, asked=1), {})


def import_is_lost() -> Evidence:
    return imported(Import(DOCUMENT, asked=1, stored=True), {})


def import_is_refused_for_nothing() -> Evidence:
    return imported(Import(DOCUMENT, asked=2, refused=2), {})


def import_of_another_document() -> Evidence:
    other = {**DOCUMENT, "events": []}
    return imported(Import(DOCUMENT, asked=1, stored=True), {OTHER: other})


def import_without_its_document() -> Evidence:
    return imported(Import(DOCUMENT, asked=1, stored=True), {OTHER: "404 run not found"})


def import_of_nobody() -> Evidence:
    return imported(Import(DOCUMENT, asked=1, stored=True), {OTHER: DOCUMENT, RUN: DOCUMENT})


def import_that_no_list_has() -> Evidence:
    return imported(Import(DOCUMENT, asked=1, stored=True), {OTHER: DOCUMENT}, listed=[])


def import_that_only_a_list_has() -> Evidence:
    return imported(Import(DOCUMENT, asked=1), {}, listed=[OTHER])


def import_that_goes_on() -> Evidence:
    return imported(
        Import(DOCUMENT, asked=1, stored=True), {OTHER: DOCUMENT}, malformed=[f"7 is behind the import {OTHER}"]
    )


GOOD: tuple[Callable[[], Evidence], ...] = (good_import, good_import_in_doubt, good_import_without_an_answer)
BROKEN: Mapping[Callable[[], Evidence], str] = {
    import_is_lost: "imports",
    import_is_refused_for_nothing: "imports",
    import_of_another_document: "imports",
    import_without_its_document: "imports",
    import_of_nobody: "imports",
    import_that_no_list_has: "imports",
    import_that_only_a_list_has: "imports",
    import_that_goes_on: "impossible event",
}
