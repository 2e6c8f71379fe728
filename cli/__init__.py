"""The `penstock` command.

Here: the command itself and its exit codes (main.py), what its subcommands share (session.py), run ids and times as
people write them (ids.py, times.py), how results are shown (output.py), and one file per group: workflow.py, run.py
(with bulk.py and run_view.py), approval.py, dlq.py, trigger.py, task.py, worker.py, config.py. options.py makes flags
of the settings. Not here: rules of the service. A command parses, calls the HTTP client, and prints; `validate` alone
calls the engine. Everything heavy (the HTTP client, rich, the subcommands themselves) is imported when it is used:
`penstock --help` must answer at once. Start reading at main.py.
"""
