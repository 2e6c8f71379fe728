"""How telemetry leaves a process: its numbers, warnings and spans go to the TELEMETRY stream, those of a supervisor by
one of its children.

Not here: what is counted (telemetry/), how it is shown (http/system). Start reading at telemetry.py.
"""
