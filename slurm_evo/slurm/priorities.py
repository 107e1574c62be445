"""SiteFactors and direct-priority mode, read back through sprio(1).

Neither is in a job's own record. In direct-priority mode (somebody or, after a federated move, Slurm itself
set the number) slurmctld sends sprio the number and no factors, so that every column shows 0; without it the
priority is the sum of its columns, or 1 where that is not positive. So a job whose columns are all 0 is in
that mode if its priority is above 1, or if its own record has a Nice that sprio does not show. With priority
1 and no Nice the two cannot be told apart; such a job is not called direct.

There is no line for held jobs, REVOKED trackers, and jobs that are not eligible yet (``--begin``,
dependencies): their SiteFactor cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slurm_evo.model import AnswerUnreadable, ClusterName, Job

SPRIO_FORMAT = "%i|%Y|%A|%B|%F|%J|%P|%Q|%T|%S|%N"
"""Job, priority, weighted age, association, fair share, job size, partition, QOS, TRES, site factor, nice."""
_COLUMNS = SPRIO_FORMAT.count("|") + 1


@dataclass(frozen=True, slots=True)
class Standing:
    """How one pending job got its priority, by sprio."""

    priority: int
    site_factor: int
    no_factors: bool
    """All columns are 0."""


def parse_sprio(cluster: ClusterName, text: str) -> Mapping[int, Standing]:
    """Read ``sprio --noheader --local --format`` with SPRIO_FORMAT; by job id (an array by its array id).

    A job of several partitions has a line for each; they agree in what is read here.

    Raises:
        AnswerUnreadable: a line has another form.
    """
    found: dict[int, Standing] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split("|")]
        try:
            if len(fields) != _COLUMNS:
                raise ValueError(f"{len(fields)} columns")  # noqa: TRY301 - one place tells what is wrong
            # %T lists TRES by name, such as cpu=12,gres/gpu=400, and is empty without PriorityWeightTRES
            tres = [part.partition("=")[2] for part in fields.pop(8).split(",") if part]
            job, priority, *factors = (int(float(field or "0")) for field in fields)
            untouched = not any(factors) and not any(float(part) for part in tres if part)
        except (ValueError, OverflowError) as failure:
            raise AnswerUnreadable(
                cluster, f"sprio answered {line[:80]!r}: {failure}; expected the columns {SPRIO_FORMAT}"
            ) from failure
        found[job] = Standing(priority, factors[-2], untouched)
    return found


def with_standing(jobs: Iterable[Job], standing: Mapping[int, Standing]) -> tuple[Job, ...]:
    """Add what sprio told to the records of jobs that wait here."""
    joined = []
    for job in jobs:
        told = standing.get(job.id) or standing.get(job.array_id or 0)
        if told is None or not job.waiting_here:
            joined.append(job)
            continue
        direct = told.no_factors and (told.priority > 1 or job.nice != 0)
        # in direct-priority mode sprio shows 0, whatever is stored
        joined.append(replace(job, direct_priority=direct, site_factor=None if direct else told.site_factor))
    return tuple(joined)
