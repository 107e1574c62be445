"""What doctor finds in the tables of [clusters.transfers]: words that the cluster itself does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurm_evo.config import ClusterTransferSettings
from slurm_evo.model import ClusterView
from slurm_evo.slurm.transfer.tables import Known

Said = tuple[str, bool, str, str]
"""Subject, whether it must be changed before a move can come to this cluster, what was seen, what to change."""


def findings(view: ClusterView, given: ClusterTransferSettings) -> Iterator[Said]:
    """Look at one cluster's tables beside what it says of itself (limits come from slurmdbd)."""
    known = Known.of(view)
    accounts = None if known.accounts is None else frozenset(account for _, account in known.accounts)
    wrong = 0
    for topic, table, mine in (
        ("partitions", given.partitions, known.partitions),
        ("qos", given.qos, known.qos),
        ("accounts", given.accounts, accounts),
        ("gpu_types", given.gpu_types, known.gpu_types),
    ):
        for theirs, ours in _unknown(table, mine):
            wrong += 1
            seen = f"«{theirs}» is to become «{ours}», which this cluster does not have"
            yield f"transfers.{topic}", True, seen, f"correct clusters.{view.cluster}.transfers.{topic}"
        if mine is None and table:
            wrong += 1
            seen = "its words could not be checked: slurmdbd did not tell this cluster's own"
            yield f"transfers.{topic}", False, seen, "run doctor again when slurmdbd answers"
    if not given.url:
        yield "transfers.url", False, "no slurmrestd is named: jobs can only leave this cluster", ""
    if given.url and not given.paths:
        seen, change = "no shared folder is named: no job can come", 'paths = { "/home" = "/home" }'
        yield "transfers.paths", True, seen, change
    if given.state_dir is None and not given.state_reader:
        seen = "only accounting is read: jobs whose scripts have arguments cannot leave this cluster"
        yield (
            "transfers.state_dir",
            False,
            seen,
            "state_dir or state_reader, see how-to/clusters-without-federation",
        )
    if not wrong:
        yield "transfers", False, "every partition, QOS, account and GPU type in its tables is known here", ""


def _unknown(table: Mapping[str, str], mine: frozenset[str] | None) -> Iterator[tuple[str, str]]:
    """Entries that lead nowhere; nothing where the cluster's own words could not be had."""
    if mine is not None:
        yield from ((theirs, ours) for theirs, ours in sorted(table.items()) if ours not in mine)
