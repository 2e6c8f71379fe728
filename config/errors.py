"""What is wrong with the settings. Apart from settings.py because the command line imports it on every call."""

from __future__ import annotations


class SettingsError(Exception):
    """One line, fit to be shown to the operator; never holds a secret."""
