"""Definitions: what a user registers, and how each of its fields is read.

definitions.py has what is stored. forms.py reads and describes an object by a table of its fields; step_fields.py has
the fields that every step may have. Single values are read by values.py, identifiers.py, durations.py, subjects.py and
signals.py; problems go to report.py. schema.py checks inputs, graph.py finds cycles, nulls.py removes nulls.

Not here: what happens to a run (run/), a whole definition (engine/validation.py). Start reading at definitions.py.
"""
