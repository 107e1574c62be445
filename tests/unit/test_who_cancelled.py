"""Who cancelled the original of a move, as slurmctld and accounting tell it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from slurm_evo.model import ClusterName
from slurm_evo.slurm.runner import Ran
from slurm_evo.slurm.transfer import Life
from slurm_evo.slurm.transfer.slurm_way import SlurmTransfers

OURS = "slurm-evo:to=gamma:7"


@pytest.mark.parametrize(
    ("comment", "accounted", "by_us"),
    [
        (OURS, "CANCELLED by 64030", True),
        (OURS, "CANCELLED by 1000", False),
        # After a kill -9 of slurmctld neither it nor accounting knows who it was; seen on 26.05.
        (OURS, "CANCELLED", True),
        ("", "CANCELLED", False),
        ("", "CANCELLED by 64030", False),
        (OURS, "PENDING", None),
        (OURS, "COMPLETED", False),
        (f"{OURS} slurm-evo:move=a1", "CANCELLED by 64030", True),
        # by a daemon with another journal: its copy counts, not ours
        (f"{OURS} slurm-evo:move=b2", "CANCELLED by 64030", False),
    ],
)
def test_our_mark_and_accounting_tell_who_cancelled(comment: str, accounted: str, by_us: bool | None) -> None:
    record = {"job_id": 7, "job_state": ["CANCELLED"], "admin_comment": comment, "shared": ["none"]}

    def run(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> Ran:
        del env, timeout_s
        return Ran(0, f"{accounted}|{comment}\n" if argv[0] == "sacct" else json.dumps({"jobs": [record]}), "")

    port = SlurmTransfers(ClusterName("delta"), slurm_conf="/etc/slurm.conf", our_uid=64030, run=run)
    try:
        seen = port.original(7, "a1")
    finally:
        port.close()
    assert (seen.life, seen.cancelled_by_us) == (Life.ENDED, by_us)
