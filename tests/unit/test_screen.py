"""What people are shown is what was said."""

from __future__ import annotations

import pytest

from slurm_evo.cli.screen import screen
from slurm_evo_daemon.screens import history_table


def test_brackets_and_colons_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"job": "delta:1", "why": "no feature [rack1|rack2] :cat: [/x]"}]
    screen().print(history_table(rows))
    assert "no feature [rack1|rack2] :cat: [/x]" in capsys.readouterr().out
