"""The first schema."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

from slurm_evo.store.tables import MARIADB, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def upgrade() -> None:
    _create_cycles()
    _create_jobs()
    _create_lease()
    _create_policies()
    _create_actions()
    _create_plans()
    _create_refusals()
    _create_placements()
    lease = sa.table(
        "lease", sa.column("id"), sa.column("holder"), sa.column("epoch"), sa.column("ends", UtcDateTime)
    )
    op.bulk_insert(lease, [{"id": 1, "holder": "", "epoch": 0, "ends": LONG_AGO}])


def _create_cycles() -> None:
    op.create_table(
        "cycles",
        sa.Column("number", ROW_ID, nullable=False),
        sa.Column("mode", sa.String(length=8), nullable=False),
        sa.Column("started", UtcDateTime(), nullable=False),
        sa.Column("ended", UtcDateTime(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=True),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_cycles")),
        sqlite_autoincrement=True,
        **MARIADB,
    )
    op.create_index(op.f("ix_cycles_started"), "cycles", ["started"], unique=False)


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("job", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("submitted", UtcDateTime(), nullable=False),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.Column("seen_at", UtcDateTime(), nullable=False),
        sa.Column("site_factor", sa.BigInteger(), nullable=True),
        sa.Column("age_lost_s", sa.Double(), nullable=False),
        sa.Column("moved_at", UtcDateTime(), nullable=True),
        sa.Column("moves", sa.Integer(), nullable=False),
        sa.Column("wanted", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("widening_since", UtcDateTime(), nullable=True),
        sa.Column("stranded_since", UtcDateTime(), nullable=True),
        sa.Column("healed_at", UtcDateTime(), nullable=True),
        sa.Column("refusing", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "job", name=op.f("pk_jobs")),
        **MARIADB,
    )
    op.create_index(op.f("ix_jobs_seen_at"), "jobs", ["seen_at"], unique=False)


def _create_lease() -> None:
    op.create_table(
        "lease",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("ends", UtcDateTime(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_lease_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lease")),
        **MARIADB,
    )


def _create_policies() -> None:
    op.create_table(
        "policies",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("created", UtcDateTime(), nullable=False),
        sa.Column("promotion", sa.BigInteger(), nullable=True),
        sa.Column("promoted_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
        sa.UniqueConstraint("promotion", name=op.f("uq_policies_promotion")),
        **MARIADB,
    )


def _create_actions() -> None:
    op.create_table(
        "actions",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("cycle", ROW_ID, nullable=False),
        sa.Column("job_cluster", sa.String(length=64), nullable=False),
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("seen_before", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("intended_at", UtcDateTime(), nullable=False),
        sa.Column("settled_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["cycle"], ["cycles.number"], name=op.f("fk_actions_cycle_cycles"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_actions")),
        sqlite_autoincrement=True,
        **MARIADB,
    )
    op.create_index(op.f("ix_actions_cycle"), "actions", ["cycle"], unique=False)
    op.create_index(op.f("ix_actions_job_cluster_job"), "actions", ["job_cluster", "job"], unique=False)
    op.create_index(op.f("ix_actions_state"), "actions", ["state"], unique=False)


def _create_plans() -> None:
    op.create_table(
        "plans",
        sa.Column("cycle", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("chosen", sa.JSON(), nullable=False),
        sa.Column("unchanged", sa.JSON(), nullable=False),
        sa.Column("front", sa.JSON(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("weights", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cycle"], ["cycles.number"], name=op.f("fk_plans_cycle_cycles"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cycle", name=op.f("pk_plans")),
        **MARIADB,
    )


def _create_refusals() -> None:
    op.create_table(
        "refusals",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("job", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cycle", ROW_ID, nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cycle"], ["cycles.number"], name=op.f("fk_refusals_cycle_cycles"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cluster", "job", name=op.f("pk_refusals")),
        **MARIADB,
    )
    op.create_index(op.f("ix_refusals_cycle"), "refusals", ["cycle"], unique=False)


def _create_placements() -> None:
    op.create_table(
        "placements",
        sa.Column("cycle", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("job", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("clusters", sa.JSON(), nullable=False),
        sa.Column("clusters_before", sa.JSON(), nullable=False),
        sa.Column("changed", sa.Boolean(), nullable=False),
        sa.Column("expected_cluster", sa.String(length=64), nullable=True),
        sa.Column("expected_start_s", sa.Double(), nullable=True),
        sa.Column("expected_start_before_s", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cycle"], ["plans.cycle"], name=op.f("fk_placements_cycle_plans"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cycle", "cluster", "job", name=op.f("pk_placements")),
        **MARIADB,
    )
    op.create_index(op.f("ix_placements_changed"), "placements", ["changed"], unique=False)
    op.create_index(op.f("ix_placements_cluster_job"), "placements", ["cluster", "job"], unique=False)
