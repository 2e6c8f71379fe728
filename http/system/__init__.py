"""Endpoints for operators and monitors: /health, /ready, /metrics, /broker, /settings.

Not here: runs (resources/), how metrics are counted (telemetry/). Start reading at health.py.
"""
