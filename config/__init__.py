"""Configuration: every limit and every setting, with its default written once.

limits.py has the limits of the specification; keys.py is the table of keys from which TOML, environment, flags and the
documentation come; settings.py has the tree of settings and its layers; units.py has texts for durations and sizes;
logging.py is the log of all modules, log_setup.py configures it; gunicorn.py configures the front end's server. The
room process/ has what every process needs: background tasks, ports, crash points for tests.

Not here: anything else of penstock. This folder is a leaf: it imports itself, and telemetry/, whose warnings the log
stores. Each part of the service receives its own section (`settings.broker`), never the whole tree, never os.environ.
Start reading at settings.py: `load` merges flag > environment > file > default and converts once.
"""
