"""Workflows in Python: what builds the JSON of a definition.

    flow = Workflow("order", input=Order)
    paid = flow.step(charge, input=flow.input, retries=3)
    flow.step(thank, after=paid, when=paid.output.total > 0)
    flow.definition()

workflow.py has `Workflow`, with a method for each kind of step; steps.py and documents.py are what these methods put
together, options.py the options that they take; tasks.py has `@task`, references.py what stands for a step.
expressions.py builds the text of expressions from operators, functions.py from functions, templates.py writes both into
JSON, literals.py writes values. fields.py and codecs.py read types. linting.py warns of what is probably not meant.

Not here: what a definition means, and which ones are valid: that is the engine's. Nothing here runs a step.
Start reading at steps.py.
"""

from penstock.authoring.functions import (
    all_,
    and_,
    any_,
    contains,
    default,
    duration,
    event,
    expression,
    filter_,
    has,
    if_,
    in_,
    index,
    int_,
    item,
    map_,
    matches,
    not_,
    number,
    or_,
    secret,
    size,
    string,
    timestamp,
)
from penstock.authoring.options import failure_run, handler
from penstock.authoring.references import StepRef
from penstock.authoring.tasks import task
from penstock.authoring.workflow import Workflow

__all__ = [
    "StepRef",
    "Workflow",
    "all_",
    "and_",
    "any_",
    "contains",
    "default",
    "duration",
    "event",
    "expression",
    "failure_run",
    "filter_",
    "handler",
    "has",
    "if_",
    "in_",
    "index",
    "int_",
    "item",
    "map_",
    "matches",
    "not_",
    "number",
    "or_",
    "secret",
    "size",
    "string",
    "task",
    "timestamp",
]
