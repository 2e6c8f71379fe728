"""What came of a storm, as data and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .api import Api
from .evidence import Evidence, Violation
from .faults import Faults
from .gathering import Gathering
from .plan import Deed, Fault
from .step_account import Seen

LISTED_MAX = 500
OF_A_RULE = 4  # violations of one rule are shown with the histories of their runs
HISTORY_MAX = 40


class Report(Struct, frozen=True, kw_only=True):
    """Everything that is printed. Times in s; `calm_s` is how long everything took to end after the last fault, or how
    long that was waited for.

    `repeated` are executions beyond the first of one attempt and iteration of a step: they are allowed. `late` are
    events that changed nothing; `timers` of ended runs are still set, and will change nothing. `lost` are promised runs
    that are not in the log. `archived` are runs whose histories have gone into the archive. `restored` are the runs of
    the backup, as they have ended. `violations` come with the history of their run.
    """

    seed: int
    plan: list[str]
    seconds: float
    calm_s: float
    faults: dict[str, int]
    missed: int
    kills: int
    freezes: int
    runs: dict[str, int]
    acknowledged: dict[str, int]
    executions: int
    repeated: int
    events: int
    late: int
    timers: int
    longest_stall_s: float
    answers: dict[str, int]
    lost: int
    violations: list[Violation]
    histories: dict[str, list[Seen]]
    archived: int = 0
    restored: dict[str, int] = {}

    @property
    def held(self) -> bool:
        return not self.violations


def reported(
    seed: int,
    plan: Sequence[Fault],
    begin: float,
    end: float,
    calm_s: float,
    faults: Faults,
    api: Api,
    gathering: Gathering,
    evidence: Evidence,
    violations: Sequence[Violation],
) -> Report:
    """The report of a storm that lasted from `begin` to `end`, in s since the epoch."""
    shown = _shown(violations)
    accounts = [history.account for history in evidence.histories.values()]
    executed = Counter((one.run_id, one.step_id, one.attempt, one.iteration) for one in evidence.executions)
    return Report(
        seed=seed,
        plan=[str(fault) for fault in plan],
        seconds=round(end - begin, 1),
        calm_s=round(calm_s, 1),
        faults={f"{deed} {role}": count for (deed, role), count in sorted(faults.done.items())},
        missed=faults.missed,
        kills=_count(faults, Deed.KILL),
        freezes=_count(faults, Deed.FREEZE),
        runs=dict(Counter(account.status or "not started" for account in accounts)),
        acknowledged=_acknowledged(evidence),
        executions=executed.total(),
        repeated=executed.total() - len(executed),
        events=sum(len(history.seen) for history in evidence.histories.values()),
        late=sum(account.late for account in accounts),
        timers=len(evidence.timers),
        longest_stall_s=round(gathering.longest_stall(begin, end), 2),
        answers={
            f"{method} {path} {status or 'none'}": count
            for (method, path, status), count in sorted(api.answers.items())
        },
        archived=len(gathering.archived),
        lost=sum(violation.rule == "acknowledged start" for violation in violations),
        violations=list(violations),
        histories={run_id: history.seen for run_id, history in evidence.histories.items() if run_id in shown},
    )


def with_restored(
    report: Report, violations: Sequence[Violation], runs: dict[str, int], histories: dict[str, list[Seen]]
) -> Report:
    """The report, with what was found in the service out of the backup."""
    wanted = _shown(violations)
    shown = {run_id: seen for run_id, seen in histories.items() if run_id in wanted}
    return replace(
        report,
        violations=[*report.violations, *violations],
        histories={**report.histories, **shown},
        restored=runs,
        lost=report.lost + sum(one.rule == "restored: acknowledged start" for one in violations),
    )


def lines(report: Report) -> Iterator[str]:
    """The whole report for people."""
    lasted = f"{report.seconds:g} s of faults over load"
    yield f"seed {report.seed}: {lasted}, the calm after it took {report.calm_s:g} s"
    yield f"  faults          {report.kills} kills, {report.freezes} freezes, {report.missed} found nothing to hit"
    for name, count in report.faults.items():
        yield f"    {name:<20} {count:>6,}"
    yield f"  runs            {sum(report.runs.values()):,}: {_counts(report.runs)}"
    yield f"  restored        {sum(report.restored.values()):,}: {_counts(report.restored)}"
    yield f"  acknowledged    {_counts(report.acknowledged)}"
    yield f"  executions      {report.executions:,}, of them {report.repeated:,} again of the same attempt (allowed)"
    yield f"  events          {report.events:,}, of them {report.late:,} that changed nothing"
    yield f"  archived runs   {report.archived:,}"
    yield f"  left over       {report.timers} timers of ended runs (allowed: they will change nothing)"
    yield f"  longest stall   {report.longest_stall_s:.2f} s without progress while load was on"
    yield f"  answers         {_counts(report.answers)}"
    yield f"  lost            {report.lost} of what was acknowledged"
    yield f"  violations      {len(report.violations)}"
    for rule, count in Counter(violation.rule for violation in report.violations).items():
        yield f"    {rule:<20} {count:>6,}"
    told = Counter[str]()
    for violation in report.violations[:LISTED_MAX]:
        told[violation.rule] += 1
        yield from _violation(violation, report.histories if told[violation.rule] <= OF_A_RULE else {})


def _shown(violations: Sequence[Violation]) -> set[str]:
    """The runs of the first violations of each rule."""
    found, told = set[str](), Counter[str]()
    for violation in violations:
        told[violation.rule] += 1
        if violation.run_id is not None and told[violation.rule] <= OF_A_RULE:
            found.add(violation.run_id)
    return found


def _violation(violation: Violation, histories: dict[str, list[Seen]]) -> Iterator[str]:
    yield f"{violation.rule}: {violation.what}" + (f" (run {violation.run_id})" if violation.run_id else "")
    for seen in histories.get(violation.run_id or "", [])[:HISTORY_MAX]:
        execution = "" if seen.step_id is None else f"{seen.step_id} {seen.attempt or ''}/{seen.iteration or 0}"
        yield f"    {seen.seq:>8} {seen.at:.3f} {seen.type:<20} {execution:<14} {str(seen.payload or '')[:120]}"


def _acknowledged(evidence: Evidence) -> dict[str, int]:
    ledger = evidence.ledger
    starts = Counter(ledger.acknowledged.values())
    others = {
        "webhooks": sum(ledger.deliveries.values()),
        "events": sum(map(bool, ledger.events.values())),
        "ticks": ledger.ticks.last - ledger.ticks.first + 1 if ledger.ticks else 0,
        "signals": len(ledger.signals),
        "decisions": sum(verdict.status == 200 for verdicts in ledger.verdicts.values() for verdict in verdicts),
        "cancelled": len(ledger.cancelled),
        "unscheduled": len(ledger.unscheduled),
        "replayed": len(ledger.replayed),
        "answers": sum(bool(sent.seqs) for sent in ledger.sent.values()),
        "requests": sum(asked.status == 200 for asked in ledger.requests),
        "calls": sum(map(len, ledger.calls.values())),
        "reruns": len(ledger.reruns),
        "pauses": len(ledger.paused),
        "by hand": sum(one.done for one in ledger.by_hand),
        "begun now": len(ledger.begun_now),
        "reruns by key": sum(bool(one.answers) for one in ledger.keyed_reruns.values()),
        "labelled": sum(bool(one.labels and one.answers) for one in ledger.starts.values()),
        "pruned": len(evidence.removed),
        "imported": len(evidence.imports),
        "said": sum(map(len, (evidence.lines or {}).values())),
        "slots": sum(len(history.account.slots.all) for history in evidence.histories.values()),
        "refused": sum(history.account.slots.refused is not None for history in evidence.histories.values()),
        "undone": sum(history.account.compensation is not None for history in evidence.histories.values()),
    }
    return {**starts, **others}


def _count(faults: Faults, deed: Deed) -> int:
    return sum(count for (done, _), count in faults.done.items() if done is deed)


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(found.items(), key=lambda item: -item[1]))
