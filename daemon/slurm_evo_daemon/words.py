"""Names in files that plugins read."""

from __future__ import annotations

import re


def encoded(name: str) -> str:
    """ASCII without spaces, reversible: a space is %20, a percent sign %25."""
    return re.sub(rb"[^!-$&-~]", lambda found: b"%%%02X" % found[0][0], name.encode()).decode()
