"""Definitions: the JSON that a user registers, and every check of it.

validation.py reads untyped JSON by tables of fields (forms.py) and collects every problem (report.py), value by value
(values.py, identifiers.py, durations.py, subjects.py); definitions.py is what is stored; run/workflow.py compiles it for runs; schema.py checks
inputs, signals.py signals; graph.py finds cycles.

Not here: what happens to a run. Start reading at definitions.py.
"""
