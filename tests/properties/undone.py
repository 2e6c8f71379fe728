"""What a run has undone when it has ended, by the states that it had."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.run.expansion import expanded
from penstock.engine.run.items import ItemStatus
from penstock.engine.run.state import Run, RunStatus, StepStatus
from tests.properties.shell import Shell


class Undone(Shell):
    """Looks at the states from the first to the last."""

    def check_compensation(self) -> None:
        """What had completed was undone once, each time the one that had completed last; or nothing was."""
        assert self.run is not None
        completed: list[str] = []
        undone: list[str] = []
        former = set[str]()
        before: Run | None = None
        for run in self.states:
            if run is None:
                continue
            if before is not None and run.status is RunStatus.FAILED and run.compensation is None:
                assert before.status is RunStatus.FAILED or not list(self.running(before)), "it may have to be undone"
            together = set(self.undoable(run)) - set(completed)  # a planner completes with its last step, and after it
            completed += sorted(together, key=len, reverse=True)
            begun = [step_id for step_id in run.steps if step_id.endswith(".compensate") and step_id not in former]
            former |= set(begun)
            assert not begun or not list(self.running(run)), "what runs is waited for"
            before = run
            for step_id in begun:
                left = [done for done in completed if done not in undone]
                assert step_id == f"{left[-1]}.compensate"
                undone.append(left[-1])
        if self.run.compensation is not None:
            assert sorted(undone) == sorted(completed) == sorted(self.undoable(self.run))
            failed = any(self.run.steps[f"{one}.compensate"].status is StepStatus.FAILED for one in undone)
            assert self.run.compensation.outcome == ("failed" if failed else "completed")
        else:
            assert undone == []
            assert self.run.status is not RunStatus.FAILED or not list(self.undoable(self.run))

    def running(self, run: Run) -> Iterator[str]:
        """The steps, and elements of maps, that run at a worker and have something that undoes them."""
        workflow = expanded(self.workflow, run)
        for step_id, step in run.steps.items():
            plan = workflow.steps.get(step_id)
            if plan is None:
                continue
            outlives = plan.compensate is not None and plan.kind.outlives(plan)
            if outlives and step.status is StepStatus.RUNNING:
                yield step_id
            if step.items is not None and plan.each is not None and plan.each.compensate is not None:
                yield from (f"{step_id}.{n}" for n, one in step.items.numbered() if one.status == ItemStatus.RUNNING)

    def undoable(self, run: Run) -> Iterator[str]:
        """The steps, and elements of maps, that have completed and have something that undoes them."""
        workflow = expanded(self.workflow, run)
        for step_id, step in run.steps.items():
            plan = workflow.steps.get(step_id)
            if plan is None or step.status in (StepStatus.RECOVERED, StepStatus.SKIPPED):
                continue
            if plan.compensate is not None and step.status is StepStatus.COMPLETED:
                yield step_id
            if step.items is not None and plan.each is not None and plan.each.compensate is not None:
                elements = step.items.numbered()
                yield from (f"{step_id}.{n}" for n, element in elements if element.status == ItemStatus.COMPLETED)
