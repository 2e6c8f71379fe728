"""How telemetry leaves a process: metrics, warnings and spans are published to the stream TELEMETRY.

telemetry.py publishes those of its own process; relay.py passes those of the supervisor on, which has no connection to
the broker, through one of its children.

Not here: what is counted (telemetry/), how it is shown (http/system). Start reading at telemetry.py.
"""
