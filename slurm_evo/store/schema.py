"""Bringing a database to the schema this version knows."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from slurm_evo.model import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 5_308_416_001
"""Ours alone among the advisory locks of the database."""


def upgrade(engine: Engine, where: str) -> None:
    """Run the missing migrations, one process at a time; in one transaction, where the database can.

    MariaDB commits each change of a table by itself: back up before an upgrade.

    Args:
        engine: of the journal, its transactions writing ones.
        where: the journal's URL without its password, for errors.

    Raises:
        StoreError: the schema is one this version does not know.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    known = ScriptDirectory.from_config(config)
    newest = known.get_current_head()
    with engine.connect() as connection:
        # Most often there is nothing to do, and a reader need not wait for a writer to learn it.
        reader = connection.execution_options(slurm_evo_writes=False)
        current = _current(reader)
    if current == newest:
        return
    with engine.begin() as connection:
        _wait_for_others(connection)
        current = _current(connection)
        if current is not None and current not in {script.revision for script in known.walk_revisions()}:
            raise StoreError(
                f"The journal {where} has schema {current}, "
                f"which is newer than this slurm-evo (it knows up to {newest}): "
                "install the version that wrote it, or restore the backup taken before the upgrade"
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        _let_others(connection)


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _wait_for_others(connection: Connection) -> None:
    """Two processes that open an empty database at once must not both create it.

    SQLite's BEGIN IMMEDIATE has locked already.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    elif connection.dialect.name == "mariadb":
        got = connection.execute(text("SELECT GET_LOCK('slurm_evo_schema', 60)")).scalar()
        if got != 1:
            raise StoreError("Another process has been changing the journal's schema for a minute; try again")


def _let_others(connection: Connection) -> None:
    # MariaDB's named locks outlive the transaction; PostgreSQL's and SQLite's end with it.
    if connection.dialect.name == "mariadb":
        connection.execute(text("SELECT RELEASE_LOCK('slurm_evo_schema')"))
