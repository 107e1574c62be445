"""A database by URL: connecting, transactions, and errors an operator can act on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Delete, Engine, Update, create_engine, event, make_url
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError, StatementError
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from slurm_evo.model import NoJournal, StoreError
from slurm_evo.store import schema
from slurm_evo.store.tables import Table

WAIT_S = 30
"""How long a statement waits for another process's transaction: longer than any of ours takes."""
DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mariadb": "mariadb+pymysql",
}
EXTRAS = {"postgresql": "postgres", "mariadb": "mysql"}
_WRITES = "slurm_evo_writes"

T = TypeVar("T")


class Database:
    """An open journal database at the newest schema.

    Args:
        engine: connected; the tables exist.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = engine.execution_options(**{_WRITES: True})

    @classmethod
    def open(cls, url: str, *, password_file: Path | None = None, make: bool = True) -> Self:
        """Connect, and bring an old or empty database to the newest schema.

        Args:
            url: ``sqlite:////absolute/path``, ``sqlite://`` (in memory, for tests and demos),
                ``postgresql://user@host/database`` or ``mariadb://user@host/database``.
            password_file: holds the password of the URL's user in its first line.
            make: whether an SQLite file that is not there is made.

        Raises:
            NoJournal: it is not to be made, and not there or not readable.
            StoreError: the database cannot be reached, or was written by a newer slurm-evo.
        """
        address = _address(url, password_file)
        where = shown(address)
        if not make and address.get_backend_name() == "sqlite" and not _readable(address.database):
            raise NoJournal(
                f"{address.database} is not there, or this account may not read it. The daemon makes it when it "
                "first runs; if it keeps its journal elsewhere, set store.state_dir (or store.url) to the same"
            )
        engine = None
        try:
            with explained(where, "opened"):
                engine = _connect(address)
                schema.upgrade(engine.execution_options(**{_WRITES: True}), where)
        except StoreError:
            if engine is not None:
                engine.dispose()
            raise
        return cls(engine)

    @property
    def url(self) -> str:
        """Where it is, without the password."""
        return shown(self._engine.url)

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _read(self) -> Iterator[Session]:
        """One consistent look; SQLite's readers never wait for its writer (WAL)."""
        with explained(self.url, "read"), Session(self._engine) as session:
            yield session

    @contextmanager
    def _write(self) -> Iterator[Session]:
        """One transaction: all of it is kept, or nothing."""
        with explained(self.url, "written"), Session(self._writer) as session, session.begin():
            yield session

    def _upsert(self, session: Session, row: type[Table], values: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows, or replace those with the same primary key."""
        if not values:
            return
        table: Any = row.__table__
        keys = [column.name for column in table.primary_key]
        others = [column.name for column in table.columns if column.name not in keys]
        # Bulk upserts have no common SQL: each dialect has its own insert construct.
        statement: Any
        if self._engine.dialect.name == "mariadb":
            statement = mysql.insert(table)
            statement = statement.on_duplicate_key_update({name: statement.inserted[name] for name in others})
        else:
            module: Any = postgresql if self._engine.dialect.name == "postgresql" else sqlite
            statement = module.insert(table)
            statement = statement.on_conflict_do_update(
                index_elements=keys, set_={name: statement.excluded[name] for name in others}
            )
        session.connection().execute(statement, values)


@contextmanager
def explained(where: str, what: str) -> Iterator[None]:
    """Turn whatever a database may raise into a StoreError with a sentence.

    Args:
        where: the URL without its password.
        what: ``opened``, ``read`` or ``written``.
    """
    try:
        yield
    except (SQLAlchemyError, UnicodeError, OverflowError) as failure:
        # The driver's words alone: SQLAlchemy adds the statement and a link. Drivers raise the other two
        # themselves for text that is no UTF-8 and numbers beyond 64 bits.
        words = failure.orig if isinstance(failure, StatementError) and failure.orig else failure
        text = " ".join(str(words).split())
        raise StoreError(f"The journal {where} could not be {what}: {text}") from failure


def shown(address: URL) -> str:
    """The URL for people: no password, neither before the host nor among the options."""
    options = {key: "***" if "pass" in key.lower() else value for key, value in address.query.items()}
    return address.set(query=options).render_as_string(hide_password=True)


def changed(session: Session, statement: Update | Delete) -> int:
    """Run an UPDATE or DELETE; how many rows it matched."""
    return session.connection().execute(statement).rowcount


def chunks(items: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """Cut a long list for ``IN (...)``: SQLite and PostgreSQL bound the number of parameters."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _readable(file: str | None) -> bool:
    """An SQLite file; one in memory has no name."""
    return not file or file == ":memory:" or os.access(file, os.R_OK)


def _address(url: str, password_file: Path | None) -> URL:
    """The URL with our driver and the password in it."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        # Not chained: a password with an @ or a colon in it is read as a port, and quoted in the cause.
        raise StoreError(
            "The journal's URL is not understood; write sqlite:////path/journal.sqlite, "
            "postgresql://user@host/database or mariadb://user@host/database, "
            "and put the password into store.password_file"
        ) from None
    if address.get_backend_name() == "mysql":
        # MariaDB's older name. On a real MySQL, which has no INSERT ... RETURNING, SQLAlchemy now says so.
        address = address.set(drivername=address.drivername.replace("mysql", "mariadb", 1))
    kind = address.get_backend_name()
    if kind not in DRIVERS:
        raise StoreError(
            f"The journal's URL begins with {address.drivername}:; use sqlite:, postgresql: or mariadb:"
        )
    if address.drivername == kind:
        address = address.set(drivername=DRIVERS[kind])
    if password_file is not None:
        if kind == "sqlite":
            raise StoreError("The journal is an SQLite file, which has no password: remove store.password_file")
        try:
            lines = password_file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as failure:
            raise StoreError(f"The journal's password file {password_file} cannot be read: {failure}") from failure
        if not lines or not lines[0]:
            raise StoreError(f"The journal's password file {password_file} is empty")
        address = address.set(password=lines[0])
    return address


def _connect(address: URL) -> Engine:
    """An engine set up for its kind of database. Nothing is sent yet."""
    kind = address.get_backend_name()
    options: dict[str, Any] = {"hide_parameters": True}
    if kind == "sqlite":
        options |= _sqlite_options(address)
    else:
        # READ COMMITTED everywhere: MariaDB's default would let a fence check see an old lease.
        options |= {"pool_pre_ping": True, "isolation_level": "READ COMMITTED"}
        options["connect_args"] = {"connect_timeout": 10}
    try:
        engine = create_engine(address, **options)
    except (NoSuchModuleError, ImportError) as failure:
        raise StoreError(
            f"The journal needs a driver for {kind}: pip install 'slurm-evo[{EXTRAS.get(kind, kind)}]'"
        ) from failure
    if kind == "sqlite":
        event.listen(engine, "connect", _sqlite_pragmas)
        event.listen(engine, "begin", _sqlite_begin)
    return engine


def _sqlite_options(address: URL) -> dict[str, Any]:
    if address.database in {None, "", ":memory:"}:
        return {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    file = Path(str(address.database))
    try:
        file.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as failure:
        raise StoreError(f"The journal's folder {file.parent} cannot be made: {failure}") from failure
    if not file.exists():
        # It keeps scripts and environments of jobs that are being moved; SQLite itself would let everybody read.
        with suppress(OSError):  # told when it is opened
            file.touch(mode=0o640)
    return {"connect_args": {"timeout": WAIT_S}}


def _sqlite_pragmas(connection: Any, _record: object) -> None:
    """Durable before acted upon (FULL), readers beside a writer (WAL), foreign keys held."""
    connection.isolation_level = None  # we begin transactions ourselves, see _sqlite_begin
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {WAIT_S * 1000}")
    # An already converted file is left alone: converting takes a lock.
    if cursor.execute("PRAGMA journal_mode").fetchone()[0] not in {"wal", "memory"}:
        cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _sqlite_begin(connection: Connection) -> None:
    """Writers take the lock at once: a reader that turns writer in WAL fails without waiting."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
