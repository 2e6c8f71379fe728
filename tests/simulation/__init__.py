"""Deterministic simulation: the real shell (actors/) and the real broker faces (broker/) over a broker and a clock of
our own.

A seed makes a plan (plan.py): workflows, runs, what people do, and every fault, each at its moment. A world (world.py,
made by playing.py) carries it out on virtual time; nothing else than the plan decides what happens, so a seed replays
exactly. Here: time (loop.py, clock.py); the broker, at the level of its wire (streams.py, consumers.py, followers.py,
server.py, client.py), as observed of the real one (test_fidelity.py asks both the same); processes that crash, freeze
and share partitions (process.py); workers and people (outside.py), operators (operating.py); what must hold (laws of
tests/properties, watch.py, retold/); how a failing plan becomes short (shrink.py); bugs put in on purpose (mutants.py).
Not here: how the engine decides, which tests/properties looks at alone. `python -m tests.simulation SEED` replays one
seed.
"""
