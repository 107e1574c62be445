"""Limits of associations and QOS, from ``sacctmgr --parsable2`` or from slurmrestd's slurmdb answers.

Associations and QOS without any limit are kept: that they exist says who may use the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_evo.model import AnswerUnreadable, ClusterName, Limit
from slurm_evo.slurm.facts import seconds_of
from slurm_evo.slurm.fields import Record, records
from slurm_evo.slurm.tres import gpus_of_tres

_ASSOC_FIELDS = (
    *("Cluster", "Account", "User", "Partition", "MaxJobs", "MaxSubmitJobs", "MaxTRES", "GrpJobs", "GrpTRES"),
    "MaxWall",
)
_QOS_FIELDS = (*("Name", "MaxJobsPU", "MaxSubmitJobsPU", "MaxTRESPU", "MaxTRES", "GrpJobs", "GrpTRES", "MaxWall"),)
ASSOC_FORMAT = ",".join(_ASSOC_FIELDS)
"""For ``sacctmgr show assoc format=…``."""
QOS_FORMAT = ",".join(_QOS_FIELDS)
"""For ``sacctmgr show qos format=…``."""


def parse_associations(cluster: ClusterName, text: str) -> tuple[Limit, ...]:
    """Read ``sacctmgr -P -n show assoc`` with ASSOC_FORMAT.

    Raises:
        AnswerUnreadable: a row has another form.
    """
    limits = [
        Limit(
            scope="association",
            account=row["Account"],
            user=row["User"],
            partition=row["Partition"],
            max_jobs=_whole(cluster, row, "MaxJobs"),
            max_submit=_whole(cluster, row, "MaxSubmitJobs"),
            max_gpus_per_job=_gpus(cluster, row, "MaxTRES"),
            group_jobs=_whole(cluster, row, "GrpJobs"),
            group_gpus=_gpus(cluster, row, "GrpTRES"),
            max_wall_s=_wall(cluster, row),
        )
        for row in _rows(cluster, text, _ASSOC_FIELDS)
        if row["Cluster"] == cluster
    ]
    return tuple(limits)


def parse_qos(cluster: ClusterName, text: str) -> tuple[Limit, ...]:
    """Read ``sacctmgr -P -n show qos`` with QOS_FORMAT.

    Raises:
        AnswerUnreadable: a row has another form.
    """
    limits = [
        Limit(
            scope="qos",
            qos=row["Name"],
            max_jobs=_whole(cluster, row, "MaxJobsPU"),
            max_submit=_whole(cluster, row, "MaxSubmitJobsPU"),
            max_gpus=_gpus(cluster, row, "MaxTRESPU"),
            max_gpus_per_job=_gpus(cluster, row, "MaxTRES"),
            group_jobs=_whole(cluster, row, "GrpJobs"),
            group_gpus=_gpus(cluster, row, "GrpTRES"),
            max_wall_s=_wall(cluster, row),
        )
        for row in _rows(cluster, text, _QOS_FIELDS)
    ]
    return tuple(limits)


def _rows(cluster: ClusterName, text: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
    rows = []
    for line in text.splitlines():
        values = line.split("|")
        if len(values) != len(fields):
            raise AnswerUnreadable(
                cluster, f"sacctmgr answered {line[:80]!r}; expected the columns {','.join(fields)}"
            )
        rows.append(dict(zip(fields, values, strict=True)))
    return rows


def _bad(cluster: ClusterName, row: Mapping[str, str], field: str) -> AnswerUnreadable:
    name = row.get("Name") or f"{row.get('Account')}/{row.get('User')}"
    return AnswerUnreadable(cluster, f"limits of {name}: field {field} is {row[field]!r}, which is not understood")


def _whole(cluster: ClusterName, row: Mapping[str, str], field: str) -> int | None:
    text = row[field]
    if text in ("", "-1", "UNLIMITED"):
        return None
    if not text.isascii() or not text.isdigit():
        raise _bad(cluster, row, field)
    return int(text)


def _gpus(cluster: ClusterName, row: Mapping[str, str], field: str) -> int | None:
    try:
        gpus = gpus_of_tres(row[field])
    except ValueError as failure:
        raise _bad(cluster, row, field) from failure
    return None if gpus is None else gpus.count


def _wall(cluster: ClusterName, row: Mapping[str, str]) -> int | None:
    try:
        return seconds_of(row["MaxWall"])
    except ValueError as failure:
        raise _bad(cluster, row, "MaxWall") from failure


def parse_associations_json(cluster: ClusterName, answer: Any) -> tuple[Limit, ...]:
    """Read the answer of ``/slurmdb/VERSION/associations/``.

    Raises:
        AnswerUnreadable: a field has another form.
    """
    limits = []
    for data in records(cluster, answer, "associations", "slurmdb associations"):
        record = Record(cluster, data, "an association")
        if record.text("cluster") != cluster:
            continue
        limits.append(
            Limit(
                scope="association",
                account=record.text("account"),
                user=record.text("user"),
                partition=record.text("partition"),
                max_jobs=_number(record, "max.jobs.active"),
                max_submit=_number(record, "max.jobs.total"),
                max_gpus_per_job=_tres(record, "max.tres.per.job"),
                group_jobs=_number(record, "max.jobs.per.count"),
                group_gpus=_tres(record, "max.tres.total"),
                max_wall_s=_minutes(record, "max.jobs.per.wall_clock"),
            )
        )
    return tuple(limits)


def parse_qos_json(cluster: ClusterName, answer: Any) -> tuple[Limit, ...]:
    """Read the answer of ``/slurmdb/VERSION/qos/``.

    Raises:
        AnswerUnreadable: a field has another form.
    """
    limits = []
    for data in records(cluster, answer, "qos", "slurmdb qos"):
        record = Record(cluster, data, "a QOS")
        limits.append(
            Limit(
                scope="qos",
                qos=record.text("name"),
                max_jobs=_number(record, "limits.max.jobs.active_jobs.per.user"),
                max_submit=_number(record, "limits.max.jobs.per.user"),
                max_gpus=_tres(record, "limits.max.tres.per.user"),
                max_gpus_per_job=_tres(record, "limits.max.tres.per.job"),
                group_jobs=_number(record, "limits.max.active_jobs.count"),
                group_gpus=_tres(record, "limits.max.tres.total"),
                max_wall_s=_minutes(record, "limits.max.wall_clock.per.job"),
            )
        )
    return tuple(limits)


def _number(record: Record, path: str) -> int | None:
    value = record.number_or_infinite(path)
    return value if isinstance(value, int) else None


def _minutes(record: Record, path: str) -> int | None:
    value = _number(record, path)
    return None if value is None else value * 60


def _tres(record: Record, path: str) -> int | None:
    """GPUs of a list such as ``[{"type": "gres", "name": "gpu", "count": 8}]``."""
    entries = record.raw(path)
    if entries is None:
        return None
    if not isinstance(entries, list):
        raise record.unreadable(path, entries, "a list of TRES")
    found = None
    for data in entries:
        entry = Record(record.cluster, data, record.what)
        if entry.text("type") == "gres" and entry.text("name") == "gpu":
            found = _number(entry, "count")
    return found
