"""Histories asked of the clusters themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_evo.config import Settings
from slurm_evo.model import TraceError
from slurm_evo_training.slurmdbd import ask

COLUMNS = (
    "JobID|Cluster|User|Account|Partition|QOS|JobName|State|Submit|Eligible|Start|End|Elapsed|Timelimit|NNodes|"
    "NCPUS|ReqTRES|AllocTRES"
)
ROW = (
    "7|alpha|ada|physics|gpu|normal|train|COMPLETED|2026-03-01T12:00:00|2026-03-01T12:00:00|2026-03-01T12:05:00|"
    "2026-03-01T12:15:00|00:10:00|01:00:00|1|4|cpu=4,gres/gpu=2|cpu=4,gres/gpu=2"
)


def settings(tmp_path: Path) -> Settings:
    clusters = [{"name": name, "slurm_conf": str(tmp_path / name)} for name in ("alpha", "delta")]
    return Settings.model_validate({"clusters": clusters})


def test_a_cluster_that_ran_nothing_is_no_obstacle(tmp_path: Path) -> None:
    asked = []

    def sacct(command: Sequence[str], environment: dict[str, str]) -> str:
        cluster = command[command.index("-M") + 1]
        asked.append((cluster, command[-1], environment["SLURM_CONF"]))
        return f"{COLUMNS}\n{ROW}\n" if cluster == "alpha" else f"{COLUMNS}\n"

    (found,) = ask(settings(tmp_path), days=2, runner=sacct)
    assert found.jobs["gpus"].to_list() == [2]
    assert asked == [(name, "now-48hours", str(tmp_path / name)) for name in ("alpha", "delta")]


def test_no_history_at_all_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="alpha, delta tells of no job in the last 2 days"):
        ask(settings(tmp_path), days=2, runner=lambda *_: f"{COLUMNS}\n")
