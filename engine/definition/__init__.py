"""Definitions: from the JSON that a user registers to a workflow that is compiled for `advance`.

validation.py reads untyped JSON and collects every problem (report.py), value by value (values.py, identifiers.py,
durations.py, subjects.py); definitions.py is what is stored, workflow.py what is compiled; schema.py checks inputs;
graph.py looks for cycles.

Not here: what happens to a run. Start reading at definitions.py.
"""
