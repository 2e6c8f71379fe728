"""Other systems beside penstock, for `scripts/bench.py --peers`: the same runs of three steps, started in the same way.

Here: what a system is (system.py), each of them as its own pages say to run it (penstock.py, restate.py, dbos.py,
temporal.py), what they are installed from, in environments of their own (packages.py), their programs (processes.py;
the modules *_program.py, which their own Python runs), users who start runs (users.py), and what came out
(comparison.py, summary.py). Not here: anything that the project needs; none of these systems is a dependency of it. A
module that a system's own Python runs imports nothing but that system, the standard library and users.py. Start reading
at comparison.py.
"""
