"""Configuration: every number and every setting, with its default written once.

Here: the limits of the specification (limits.py), the table of keys from which TOML, environment, flags and the
documentation come (keys.py), the settings tree and its layers (settings.py), texts for durations and sizes (units.py),
what everybody logs through (logging.py) and where that goes (log_setup.py), the front end's server (gunicorn.py), the
points at which a test has a process die (crash_points.py), and the one place where tasks are started (background.py).
Not here: anything else of penstock. This folder is a leaf: it imports nothing but itself. Each part of the service
receives its own section (`settings.broker`), never the whole tree, never os.environ. Start reading at settings.py:
`load` merges flag > environment > file > default and converts once.
"""
