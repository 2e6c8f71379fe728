"""What a storm might leave behind of runs that were removed: good evidence, and such that breaks one promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chaos_parts.evidence import Evidence, History, ShownRun
from chaos_parts.ledger import Ledger, Pruning
from chaos_parts.workflows import SHORT

from tests.scripts.broken_promises import COMPLETED, OTHER, RUN, WORKFLOWS, executed, sequence, started, step

GONE = ShownRun("completed", {})


def bulk(removed: dict[str, list[str]], *there: str, **more: Any) -> Evidence:
    """Of a bulk of two runs, what is `removed` and what is `there`; `more` is about the removal, and the evidence."""
    history = History(WORKFLOWS[SHORT], sequence(started(prune="p", at=0), *step("a"), COMPLETED))
    fields = {name: more.pop(name) for name in ("asked", "pruned", "skipped", "doubted") if name in more}
    ledger = Ledger(prunings={"p": Pruning(2, [RUN, OTHER], **fields)})
    folds = dict.fromkeys(there, b"state")
    around: dict[str, Any] = {
        "snapshots": folds,
        "folds": folds,
        "shown": {"snapshot": dict.fromkeys(there, history.shown)},
    }
    around["shown"] |= more.pop("shown", {})
    return Evidence(ledger, dict.fromkeys(there, history), removed=removed, **{**around, **more})


def good_removal() -> Evidence:
    """One was removed, the other one had not ended when it was asked for. An execution may be all that tells of it."""
    return bulk({RUN: []}, OTHER, asked=True, pruned=[RUN], skipped=[OTHER], executions=[executed("a", {"key": "k"})])


def good_removal_whose_answer_was_lost() -> Evidence:
    return bulk({RUN: [], OTHER: []}, asked=True)


def removed_run_is_there() -> Evidence:
    return bulk({}, RUN, OTHER, asked=True, pruned=[RUN])


def removed_run_is_answered() -> Evidence:
    return bulk({RUN: ["GET /runs/r/events: 200 []"]}, OTHER, asked=True, pruned=[RUN])


def removed_run_is_listed() -> Evidence:
    return bulk({RUN: []}, OTHER, asked=True, pruned=[RUN], shown={"GET /runs": {RUN: GONE}})


def removed_run_is_found_by_a_label() -> Evidence:
    return bulk({RUN: []}, OTHER, asked=True, pruned=[RUN], labelled={("team", "red"): [RUN]})


def run_is_gone_that_nobody_removed() -> Evidence:
    return bulk({RUN: []}, OTHER)


def run_is_lost_that_was_to_be_removed() -> Evidence:
    return bulk({}, OTHER, asked=True)


def run_is_gone_that_was_to_stay() -> Evidence:
    return bulk({RUN: []}, OTHER, asked=True, skipped=[RUN])


def good_removal_in_doubt() -> Evidence:
    """Its first try is carried out behind the second one."""
    return bulk({RUN: []}, OTHER, asked=True, skipped=[RUN], doubted=True)


def run_of_others_is_removed() -> Evidence:
    return bulk({RUN: [], "c" * 32: []}, OTHER, asked=True, pruned=[RUN])


GOOD = (good_removal, good_removal_whose_answer_was_lost, good_removal_in_doubt)
BROKEN: Mapping[Callable[[], Evidence], str] = {
    removed_run_is_there: "pruned",
    removed_run_is_answered: "pruned",
    removed_run_is_listed: "pruned",
    removed_run_is_found_by_a_label: "pruned",
    run_is_gone_that_nobody_removed: "removed",
    run_is_lost_that_was_to_be_removed: "removed",
    run_is_gone_that_was_to_stay: "removed",
    run_of_others_is_removed: "removed",
}
