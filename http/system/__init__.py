"""What operators and monitors ask for: /health, /ready, /metrics.

Not here: runs (resources/), how a number is counted (telemetry/). Start reading at health.py.
"""
