"""What the load scripts share: a client that costs little, load in three modes, figures about it, and processes to look
at.

Here: the wire (framing.py, connection.py), the service's operations over it (client.py), the workflow and its workers
(chain.py, worker.py), seeing runs end (watching.py), the three modes (modes.py, bulk.py), figures (figures.py), and
what people see of them (progress.py, report.py). For the benchmarks: a service of one's own (service.py, processes.py,
log.py, quota.py, publishes.py), the workloads (workloads.py and the modules *_workloads.py, samples.py), the targets
(targets.py) and the table (table.py). Not here: anything that the service itself needs. No file may be named like a
module of the standard library's http. Start reading at modes.py, or for the benchmarks at workloads.py.
"""
