"""What is installed with the service to look at it: the workflow of `penstock demo`, and those of `demo --console`.

Here: the workflow that is run and checked (textstats.json), the functions of its steps (textstats.py), and its worker
(textstats_worker.py), which is a separate process, like every worker; showcase/ has a dozen more, to fill the console.
Not here: the command that uses them (cli/commands/demo.py), and examples that are not installed (examples/).
Start reading at textstats_worker.py.
"""
