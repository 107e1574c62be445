"""The journal's tables. Changed together with a new file in migrations/versions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
)
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Fixed names, so that later migrations can name what they change."""

MARIADB: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
}
"""Names are compared exactly, as Slurm does; MariaDB's default folds case."""


class UtcDateTime(TypeDecorator[datetime]):
    """An aware instant, kept in UTC to the microsecond on every database."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        """Microseconds and, where there is one, a type that knows its zone."""
        if dialect.name == "mariadb":
            return dialect.type_descriptor(DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime(timezone=dialect.name == "postgresql"))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC; naive times are a programming error."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone: the journal keeps aware instants only")
        utc = value.astimezone(UTC)
        return utc if dialect.name == "postgresql" else utc.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002  SQLAlchemy's signature
        """Aware again."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


RowId = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers only INTEGER keys by itself
Name = String(64)  # ClusterName of slurm.conf(5) has at most 40 characters


class Table(DeclarativeBase):
    """Common to all tables."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[type, Any]] = {float: Double(), str: Text()}
    __table_args__: Any = MARIADB


class CycleRow(Table):
    """One pass of the loop."""

    __tablename__ = "cycles"
    # Numbers are never used twice, also after pruning.
    __table_args__ = (MARIADB | {"sqlite_autoincrement": True},)

    number: Mapped[int] = mapped_column(RowId, primary_key=True)
    mode: Mapped[str] = mapped_column(String(8))
    started: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    ended: Mapped[datetime | None] = mapped_column(UtcDateTime)
    epoch: Mapped[int | None] = mapped_column(BigInteger)
    seconds: Mapped[dict[str, float]] = mapped_column(JSON)
    counts: Mapped[dict[str, int]] = mapped_column(JSON)
    sentence: Mapped[str] = mapped_column(Text)


class PlanRow(Table):
    """The plan of a cycle."""

    __tablename__ = "plans"

    cycle: Mapped[int] = mapped_column(
        ForeignKey("cycles.number", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    chosen: Mapped[dict[str, float]] = mapped_column(JSON)
    unchanged: Mapped[dict[str, float]] = mapped_column(JSON)
    front: Mapped[list[dict[str, float]]] = mapped_column(JSON)
    why: Mapped[str] = mapped_column(Text)
    weights: Mapped[dict[str, float]] = mapped_column(JSON)


class PlacementRow(Table):
    """One job's placement under a plan."""

    __tablename__ = "placements"
    __table_args__ = (Index(None, "cluster", "job"), MARIADB)

    cycle: Mapped[int] = mapped_column(
        ForeignKey("plans.cycle", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    cluster: Mapped[str] = mapped_column(Name, primary_key=True)
    job: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    clusters: Mapped[list[str]] = mapped_column(JSON)
    clusters_before: Mapped[list[str]] = mapped_column(JSON)
    changed: Mapped[bool] = mapped_column(index=True)
    expected_cluster: Mapped[str | None] = mapped_column(Name)
    expected_start_s: Mapped[float | None]
    expected_start_before_s: Mapped[float | None]
    reason: Mapped[str] = mapped_column(Text)


class ActionRow(Table):
    """One change asked of Slurm."""

    __tablename__ = "actions"
    __table_args__ = (Index(None, "job_cluster", "job"), MARIADB | {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    cycle: Mapped[int] = mapped_column(ForeignKey("cycles.number", ondelete="CASCADE"), index=True)
    job_cluster: Mapped[str] = mapped_column(Name)
    job: Mapped[int] = mapped_column(BigInteger)
    cluster: Mapped[str] = mapped_column(Name)
    kind: Mapped[str] = mapped_column(String(32))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    seen_before: Mapped[dict[str, Any]] = mapped_column(JSON)
    reason: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(16), index=True)
    message: Mapped[str] = mapped_column(Text)
    intended_at: Mapped[datetime] = mapped_column(UtcDateTime)
    settled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class JobRow(Table):
    """What must not be forgotten about a job."""

    __tablename__ = "jobs"

    cluster: Mapped[str] = mapped_column(Name, primary_key=True)
    job: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    submitted: Mapped[datetime] = mapped_column(UtcDateTime)
    asked: Mapped[list[str]] = mapped_column(JSON)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    site_factor: Mapped[int | None] = mapped_column(BigInteger)
    age_lost_s: Mapped[float]
    age_points: Mapped[int] = mapped_column(BigInteger)
    moved_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    moves: Mapped[int]
    wanted: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    widening_since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    stranded_since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    healed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    refusing: Mapped[dict[str, str]] = mapped_column(JSON)
    nice_owed: Mapped[int | None] = mapped_column(BigInteger)


class TransferRow(Table):
    """One move of a job between clusters that share no federation."""

    __tablename__ = "transfers"
    __table_args__ = (
        Index(None, "cluster", "job"),
        Index(None, "destination", "copy"),
        MARIADB | {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    cluster: Mapped[str] = mapped_column(Name)
    job: Mapped[int] = mapped_column(BigInteger)
    destination: Mapped[str] = mapped_column(Name)
    copy: Mapped[int | None] = mapped_column(BigInteger)
    phase: Mapped[str] = mapped_column(String(16))
    closed: Mapped[bool] = mapped_column(index=True)
    began: Mapped[datetime] = mapped_column(UtcDateTime)
    phase_since: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    fields: Mapped[str] = mapped_column(String(64))
    image: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    site_factor: Mapped[int] = mapped_column(BigInteger)
    why: Mapped[str] = mapped_column(Text)
    owner: Mapped[str] = mapped_column(Name, server_default="")


class RefusalRow(Table):
    """Why a job was last left alone."""

    __tablename__ = "refusals"

    cluster: Mapped[str] = mapped_column(Name, primary_key=True)
    job: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    cycle: Mapped[int] = mapped_column(ForeignKey("cycles.number", ondelete="CASCADE"), index=True)
    reasons: Mapped[list[str]] = mapped_column(JSON)


class PolicyRow(Table):
    """One known policy."""

    __tablename__ = "policies"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    text: Mapped[str] = mapped_column(Text)
    source: Mapped[str] = mapped_column(Text)
    created: Mapped[datetime] = mapped_column(UtcDateTime)
    promotion: Mapped[int | None] = mapped_column(BigInteger, unique=True)
    """Place on the stack of promoted ones; the highest is in force."""
    promoted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    provenance: Mapped[str | None] = mapped_column(Text)
    """JSON; null where nothing is known but the source."""


class LeaseRow(Table):
    """The one lease."""

    __tablename__ = "lease"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"), MARIADB)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    holder: Mapped[str] = mapped_column(String(255))
    epoch: Mapped[int] = mapped_column(BigInteger)
    ends: Mapped[datetime] = mapped_column(UtcDateTime)
