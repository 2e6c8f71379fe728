"""The scripts find their shared modules beside themselves; tests find them the same way."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"

sys.path.insert(0, str(SCRIPTS))
