"""What can go wrong, as a tree drawn by what the catcher does.

::

    SlurmEvoError
      ConfigError            stop: the operator must change a file; the message names the key
      ClusterError           leave this cluster alone for this cycle
        ClusterUnreachable     try again later
        ClusterRefused         do not repeat the same request
        AnswerUnreadable       Slurm's answer was not understood: record it, tell somebody
      StoreError             stop acting: nothing may be done that cannot be journaled
        LeaseLost              another daemon may act now: stop at once
      PolicyError            refuse the expression, keep the last good one
      TraceError             bad history: names file, line and field

Always raised ``from`` their cause. The text of each is a sentence an operator can act on.
"""

from __future__ import annotations


class SlurmEvoError(Exception):
    """Something slurm-evo knows how to explain."""


class ConfigError(SlurmEvoError):
    """The configuration is wrong; change the named key and start again."""


class ClusterError(SlurmEvoError):
    """A cluster could not be used; it is left alone for this cycle.

    Args:
        cluster: the cluster concerned.
        message: a sentence for the operator.
    """

    def __init__(self, cluster: str, message: str) -> None:
        super().__init__(f"{cluster}: {message}")
        self.cluster = cluster
        self.message = message


class ClusterUnreachable(ClusterError):
    """The cluster did not answer; it is asked again in the next cycle."""


class ClusterRefused(ClusterError):
    """The cluster said no; the same request is not repeated."""


class AnswerUnreadable(ClusterError):
    """The cluster's answer was not understood: Slurm's format may have changed."""


class StoreError(SlurmEvoError):
    """The journal could not be written or read; nothing is done without it."""


class NoJournal(StoreError):
    """The file is not there or not for us to read: it would be wrong to say that nothing was ever done."""


class LeaseLost(StoreError):
    """Another daemon holds the lease; this one stops acting at once."""


class PolicyError(SlurmEvoError):
    """The expression is refused; the last good policy stays in force."""


class TraceError(SlurmEvoError):
    """The history cannot be used.

    Args:
        message: a sentence for the operator.
        file: where it was read.
        line: 1-based line of the row, if there is one.
        field: the column or key at fault, if one is.
    """

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, field: str | None = None
    ) -> None:
        where = ":".join(str(part) for part in (file, line) if part is not None)
        parts = [part for part in (where, field and f"field {field}", message) if part]
        super().__init__(": ".join(parts))
        self.file = file
        self.line = line
        self.field = field
