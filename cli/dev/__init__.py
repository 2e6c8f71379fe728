"""`penstock dev app.py`: a service and the workers of one file, which are started anew when the code changes.

command.py is the command: it starts the service (cli/demo/own_service.py) and reads one queue, into which watching.py
puts saved files and worker_processes.py what the processes say (messages.py). worker_program.py is what each of these
processes runs: loading.py finds the workflows and workers of the file, problems.py says where its errors are.

Not here: how a worker takes tasks (worker/). Start reading at command.py.
"""
