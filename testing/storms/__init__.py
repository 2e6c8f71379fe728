"""Storms: a workflow runs under many seeds, each with faults of its own, and what must hold is checked after each.

storm.py has `storm`, faults.py what can go wrong and for which tasks, weather.py how a run is driven through it.
least.py takes away faults as long as the run still breaks.

Not here: the service in memory (../memory). Start reading at storm.py.
"""
