"""Where a policy comes from, in full."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("policies", sa.Column("provenance", sa.Text(), nullable=True))
