"""The commands about workflows that are written in Python.

Here: `penstock workflow export` and `lint`, which load a module of the user's; `penstock init` (project.py), which
writes one (project_files.py).
Not here: what is written with (authoring/), and the other commands of `penstock workflow` (commands/workflow.py).
Start reading at workflow_code.py.
"""
