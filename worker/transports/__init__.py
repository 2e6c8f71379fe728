"""How a worker reaches the service: directly through the broker, or over HTTP.

direct.py with direct_intake.py is the broker's transport; held_starts.py holds back what it says of starts. bridge.py
is the HTTP transport, with bridge_intake.py (polls), answer_exchange.py (answers that leave together with a poll) and
bridge_client.py (the requests).

Not here: the protocol that both implement (../transport.py), how a task function is called (../tasks). Start reading at
../transport.py.
"""
