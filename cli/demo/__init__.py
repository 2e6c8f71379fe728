"""`penstock demo --console`: a service that the console has something to show of.

showcase.py is the command's work: it starts a service where none is named (own_service.py) and the workers
(worker_processes.py), and goes on until Ctrl-C. starting.py waits for what starts, for `penstock demo`, too.

Not here: the workflows, their functions, and what is started when (demo/showcase/). Start reading at showcase.py.
"""
