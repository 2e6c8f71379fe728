"""Definitions: what a user registers, and how each of its fields is read.

definitions.py is what is stored. forms.py reads and describes an object by a table of its fields, step_fields.py has
those of every step; values are read by values.py, identifiers.py, durations.py, subjects.py, signals.py, and problems
go to report.py. schema.py checks inputs; graph.py looks for cycles; nulls.py drops nulls.

Not here: what happens to a run (run/), a whole definition (engine/validation.py). Start reading at definitions.py.
"""
