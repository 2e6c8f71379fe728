"""What the steps of a run say, for readers: /runs/{run_id}/logs and /runs/{run_id}/stream.

logs.py and streams.py have the responders. rendering.py makes JSON of stored messages, following.py is a live stream of
them until the run has ended, which ends.py finds out.

Not here: how messages are stored and followed (broker/live), how workers over HTTP write them (http/bridge). Start
reading at logs.py.
"""
