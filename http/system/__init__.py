"""Endpoints for operators and monitors: /health, /ready, /metrics.

Not here: runs (resources/), how metrics are counted (telemetry/). Start reading at health.py.
"""
