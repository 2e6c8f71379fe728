"""What is wrong with the settings. Apart from settings.py because the command line imports it on every call."""

from __future__ import annotations


class SettingsError(Exception):
    """One line that may be shown to the operator; never contains a secret."""
