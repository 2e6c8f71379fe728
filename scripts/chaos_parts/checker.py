"""The checker: every rule over the evidence, and what was violated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from . import children, histories, importing, limits, operations, promises, pruning, states, waits
from .evidence import Evidence, Violation

RULES: Sequence[Callable[[Evidence], Iterator[Violation]]] = (
    promises.acknowledged_starts,
    promises.one_run_a_key,
    promises.bulk_all_or_none,
    promises.one_run_a_delivery,
    promises.one_run_an_event,
    promises.one_run_a_tick,
    promises.no_start_too_early,
    promises.unscheduled_never_start,
    promises.nobody_starts_by_itself,
    promises.signals_arrive,
    promises.one_decision_a_token,
    promises.cancelled_stay_cancelled,
    promises.replayed_go_on,
    promises.events_are_stored,
    promises.callers_get_the_answer,
    promises.requests_are_answered,
    promises.one_rerun_a_run,
    operations.paused_runs_are_paused,
    operations.selections_are_what_was_asked_for,
    operations.steps_by_hand_stay_so,
    operations.attempts_begin_now,
    operations.one_rerun_a_key,
    operations.reruns_take_over_what_is_done,
    operations.labels_find_their_runs,
    pruning.removed_runs_are_gone,
    pruning.only_what_was_asked_for_is_removed,
    importing.imports_are_kept,
    promises.odd_answers,
    promises.inputs_are_results,
    histories.every_run_ends,
    histories.no_impossible_event,
    histories.dependencies_first,
    histories.timers_in_time,
    histories.failures_have_a_reason,
    children.one_child_an_attempt,
    children.children_were_ordered,
    children.parents_hear_the_true_end,
    children.detached_children_go_on,
    children.children_of_failed_runs_are_undone,
    children.parents_list_their_children,
    children.one_run_a_failure,
    waits.conditions_decide,
    waits.sleeps_last_as_long_as_said,
    waits.waits_end_by_the_first_event,
    waits.maps_have_all_elements,
    limits.limits_hold_by_their_log,
    limits.limits_hold_by_the_histories,
    limits.slots_have_holders,
    limits.nobody_waits_while_there_is_room,
    limits.news_is_true,
    states.snapshot_is_the_fold,
    states.all_show_the_same,
    states.dead_letters,
    states.said_is_kept,
    states.nothing_left,
    states.no_bug_logged,
    states.no_internal_error,
)


def check(evidence: Evidence) -> list[Violation]:
    """Everything that must never be and is, in the order of the rules. Pure: the same evidence gives the same
    answer."""
    return [violation for rule in RULES for violation in rule(evidence)]


def check_open(evidence: Evidence, waited_s: float) -> list[Violation]:
    """What can be said of a storm after which not everything ended in time: which runs have not. What else there is
    still changes while it is read, so nothing of it is judged."""
    open_still = list(histories.every_run_ends(evidence))
    text = f"{waited_s:.0f} s after the last fault not everything had ended, among it {len(open_still)} runs"
    return [Violation("calm", f"{text}; nothing else was judged"), *open_still]
