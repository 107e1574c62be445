"""Putting a job into another cluster's words: what its tables do not know is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from slurm_evo.model import ClusterName, ClusterView
from slurm_evo.slurm.transfer.image import JobImage, NotMovable

_NOTHING: Mapping[str, str] = MappingProxyType({})
_TRES = ("tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task")
_PATHS = ("current_working_directory", "standard_error", "standard_input", "standard_output")
_GPU_TYPE = re.compile(r"(gres/gpu|gpu)[:=]([A-Za-z][\w.-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTables:
    """What other clusters' words mean at one cluster: theirs, or ``CLUSTER:theirs``, to its own."""

    partitions: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    qos: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    accounts: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    gpu_types: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    licenses: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    features: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    paths: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Folders that both clusters see, each with its name here; most often the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The names that a cluster has itself: they need no table."""

    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] | None = None
    """None where limits could not be had: every name must then be in the table."""
    accounts: frozenset[tuple[str, str]] | None = None
    """User and account of its associations."""
    gpu_types: frozenset[str] = frozenset()

    @classmethod
    def of(cls, view: ClusterView) -> Known:
        """From what was seen of it."""
        limits = view.limits
        return cls(
            partitions=frozenset(partition.name for partition in view.partitions),
            qos=None if limits is None else frozenset(limit.qos for limit in limits if limit.scope == "qos"),
            accounts=None
            if limits is None
            else frozenset((limit.user, limit.account) for limit in limits if limit.scope == "association"),
            gpu_types=frozenset(node.gpu_type for node in view.nodes if node.gpu_type),
        )


def look_up(table: Mapping[str, str], source: ClusterName, word: str) -> str | None:
    """The word's meaning at the destination by its table; None if it has none."""
    return table.get(f"{source}:{word}", table.get(word))


def translate(image: JobImage, to: ClusterName, tables: ClusterTables, known: Known) -> JobImage:
    """The same job in the destination's words.

    Raises:
        NotMovable: with a reason for each word that the destination does not know.
    """
    fields = dict(image.fields)
    reasons = [
        *_names(fields, image, to, tables, known),
        *_gpu_types(fields, image, to, tables, known),
        *_paths(fields, to, tables),
    ]
    if reasons:
        raise NotMovable(*dict.fromkeys(reasons))
    return replace(image, fields=fields)


def _names(
    fields: dict[str, Any], image: JobImage, to: ClusterName, tables: ClusterTables, known: Known
) -> Iterator[str]:
    source = image.key.cluster
    own = known.accounts
    accounts = None if own is None else frozenset(account for user, account in own if user == image.user)
    if own is not None and not accounts:
        yield f"user {image.user} has no association at {to}"
    for name, topic, table, mine in (
        ("partition", "partition", tables.partitions, known.partitions),
        ("qos", "QOS", tables.qos, known.qos),
        ("account", "account", tables.accounts, accounts),
        ("licenses", "licence", tables.licenses, frozenset[str]()),
        ("constraints", "feature", tables.features, frozenset[str]()),
    ):
        if not fields.get(name):
            continue
        words = []
        for word in str(fields[name]).split(","):
            bare, colon, count = word.partition(":") if name == "licenses" else (word, "", "")
            meant = look_up(table, source, bare)
            if meant is None and mine is not None and bare in mine:
                meant = bare
            if meant is None:
                yield f"the {topic} {bare} is not known at {to}"
            else:
                words.append(f"{meant}{colon}{count}")
        fields[name] = ",".join(words)


def _gpu_types(
    fields: dict[str, Any], image: JobImage, to: ClusterName, tables: ClusterTables, known: Known
) -> Iterator[str]:
    for name in _TRES:
        text = str(fields.get(name, ""))
        for match in reversed(list(_GPU_TYPE.finditer(text))):
            meant = look_up(tables.gpu_types, image.key.cluster, match[2])
            if meant is None and match[2] in known.gpu_types:
                meant = match[2]
            if meant is None:
                yield f"the GPU type {match[2]} is not known at {to}"
            else:
                text = text[: match.start(2)] + meant + text[match.end(2) :]
        if text:
            fields[name] = text


def _paths(fields: dict[str, Any], to: ClusterName, tables: ClusterTables) -> Iterator[str]:
    for name in _PATHS:
        path = str(fields.get(name, ""))
        if not path.startswith("/") or path == "/dev/null":
            continue
        folder = max((one for one in tables.paths if _below(path, one)), key=len, default=None)
        if folder is None:
            yield f"{to} is not known to see {path}"
        else:
            fields[name] = tables.paths[folder].rstrip("/") + path.removeprefix(folder.rstrip("/"))


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
