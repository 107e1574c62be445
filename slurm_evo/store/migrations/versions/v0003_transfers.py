"""Moves between clusters that share no federation."""

import sqlalchemy as sa
from alembic import op

from slurm_evo.store.tables import MARIADB, UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "transfers",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("destination", sa.String(length=64), nullable=False),
        sa.Column("copy", sa.BigInteger(), nullable=True),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("began", UtcDateTime(), nullable=False),
        sa.Column("phase_since", UtcDateTime(), nullable=False),
        sa.Column("fields", sa.String(length=64), nullable=False),
        sa.Column("image", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("site_factor", sa.BigInteger(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transfers")),
        sqlite_autoincrement=True,
        **MARIADB,
    )
    op.create_index(op.f("ix_transfers_closed"), "transfers", ["closed"], unique=False)
    op.create_index(op.f("ix_transfers_cluster_job"), "transfers", ["cluster", "job"], unique=False)
    op.create_index(op.f("ix_transfers_destination_copy"), "transfers", ["destination", "copy"], unique=False)
    op.create_index(op.f("ix_transfers_phase_since"), "transfers", ["phase_since"], unique=False)
