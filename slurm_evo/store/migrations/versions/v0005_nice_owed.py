"""The Nice that an unfinished unpinning may have taken."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("nice_owed", sa.BigInteger(), nullable=True))
