"""Whose job was moved, for the digest."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("transfers", sa.Column("owner", sa.String(length=64), server_default="", nullable=False))
