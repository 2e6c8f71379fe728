"""The demo that is installed with the service: the workflow that `penstock demo` registers, runs and checks.

Here: the workflow (textstats.json), the functions of its steps (textstats.py), and its worker
(textstats_worker.py), which is a separate process, like every worker.
Not here: the command that uses them (cli/commands/demo.py), and examples that are not installed (examples/).
Start reading at textstats_worker.py.
"""
