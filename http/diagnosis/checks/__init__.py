"""What may be wrong with the service: one small function for each check.

`facts.py` is what the checks look at, all read at about the same time. A check yields a problem with its remedy for
each thing that it finds. Not here: how the facts are read (service_facts.py). Start reading at `CHECKS` in table.py.
"""
