"""The journal on SQLite: every promise, files, and two processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_stories import AT, JournalStories, Reopen, held, later, memory
from sqlalchemy import inspect

from slurm_evo.model import StoreError
from slurm_evo.store import Journal
from slurm_evo.store.tables import Table


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'new folder' / 'journal.sqlite'}"


@pytest.fixture
def reopen(url: str) -> Reopen:
    return lambda: Journal.open(url)


@pytest.fixture
def journal(reopen: Reopen) -> Iterator[Journal]:
    with reopen() as opened:
        yield opened


class TestOnSqlite(JournalStories):
    """All promises, on a file."""


def test_a_journal_in_memory_works_and_is_gone_afterwards() -> None:
    with Journal.open("sqlite://") as journal:
        journal.remember([memory(7)])
        assert len(journal.jobs()) == 1
    with Journal.open("sqlite://") as journal:
        assert journal.jobs() == {}


def test_the_migrated_schema_has_the_constraints_of_the_tables(journal: Journal) -> None:
    """What alembic does not compare on SQLite: keys, cascades, checks, and the exact SQL of a fresh schema."""
    with Journal.open("sqlite://") as fresh:
        Table.metadata.drop_all(fresh._engine)
        Table.metadata.create_all(fresh._engine)
        made, migrated = inspect(fresh._engine), inspect(journal._engine)
        for table in Table.metadata.tables:
            assert made.get_pk_constraint(table) == migrated.get_pk_constraint(table)
            assert made.get_foreign_keys(table) == migrated.get_foreign_keys(table)
            assert made.get_check_constraints(table) == migrated.get_check_constraints(table)
            assert made.get_unique_constraints(table) == migrated.get_unique_constraints(table)
            assert made.get_indexes(table) == migrated.get_indexes(table)
            assert [repr(column) for column in made.get_columns(table)] == [
                repr(column) for column in migrated.get_columns(table)
            ]


def test_the_file_is_durable_and_readers_do_not_wait(journal: Journal, reopen: Reopen) -> None:
    with journal._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    with reopen() as reader, journal._write() as session:
        session.connection()  # the write lock is taken
        assert reader.jobs() == {}
        assert reader.lease() is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "is not understood; write sqlite:////path/journal.sqlite"),
        ("oracle://u:hunter2@h/db", "begins with oracle:; use sqlite:, postgresql: or mariadb:"),
        ("postgresql://u:hunter2@x:y@127.0.0.1/db", "put the password into store.password_file"),
        ("postgresql://u:p@127.0.0.1:hunter2/db", "is not understood"),
        ("postgresql://u:hunter2@127.0.0.1:1/db", "could not be opened"),
        ("postgresql://u@127.0.0.1:1/db?password=hunter2", "could not be opened"),
        ("mariadb://u:hunter2@127.0.0.1:1/db", "could not be opened"),
        ("mariadb://u@127.0.0.1:1/db?password=hunter2", "could not be opened"),
        ("postgresql+nodriver://u:hunter2@127.0.0.1:1/db", "needs a driver for postgresql"),
    ],
)
def test_what_cannot_be_opened_is_explained_without_the_password(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words) as refused:
        Journal.open(url)
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in "".join(traceback.format_exception_only(refused.value))
    cause = refused.value.__cause__
    assert cause is None or "hunter2" not in str(cause)


def test_the_password_of_a_file_is_used_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    with pytest.raises(StoreError, match=r"postgresql\+psycopg://u:\*\*\*@127\.0\.0\.1:1/db") as refused:
        Journal.open("postgresql://u@127.0.0.1:1/db", password_file=file)
    assert "hunter2" not in str(refused.value)


def test_a_bad_password_file_is_named(tmp_path: Path) -> None:
    empty, missing = tmp_path / "empty", tmp_path / "missing"
    empty.write_text("")
    with pytest.raises(StoreError, match=f"password file {empty} is empty"):
        Journal.open("postgresql://u@h/db", password_file=empty)
    with pytest.raises(StoreError, match=f"password file {missing} cannot be read"):
        Journal.open("postgresql://u@h/db", password_file=missing)
    with pytest.raises(StoreError, match=r"remove store\.password_file"):
        Journal.open("sqlite://", password_file=empty)


def test_a_file_that_is_no_journal_is_left_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, " * 100)
    with pytest.raises(StoreError, match=f"{file} could not be opened: file is not a database"):
        Journal.open(f"sqlite:///{file}")
    assert file.read_text() == "not a database, " * 100


def test_others_cannot_read_the_file_whatever_the_folder_allows(tmp_path: Path) -> None:
    with Journal.open(f"sqlite:///{tmp_path}/journal.sqlite"):
        modes = {file.name: file.stat().st_mode & 0o007 for file in tmp_path.iterdir()}
    assert modes
    assert set(modes.values()) == {0}, modes


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=f"folder {tmp_path / 'file' / 'x'} cannot be made"):
        Journal.open(f"sqlite:///{tmp_path / 'file' / 'x' / 'journal.sqlite'}")


def test_a_damaged_journal_stops_with_a_sentence(journal: Journal) -> None:
    with journal._engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE jobs")
    with pytest.raises(StoreError, match="could not be read: no such table: jobs"):
        journal.jobs()


OTHER = """
import sys
from datetime import datetime, timedelta
from slurm_evo.model import ClusterName, JobKey, SetSiteFactor, Outcome, Answer
from slurm_evo.store import Intent, Journal
url, name, at = sys.argv[1], sys.argv[2], datetime.fromisoformat(sys.argv[3])
with Journal.open(url) as journal:
    print("open", flush=True)
    sys.stdin.readline()
    won = 0
    for turn in range(20):
        now = at + timedelta(seconds=turn)
        # Their clocks drift apart by turns: only a release, never the clock, lets the other in.
        lease = journal.acquire(name, now=now, length_s=3600)
        if lease is None:
            continue
        won += 1
        cycle = journal.begin_cycle(now=now, lease=lease)
        action = SetSiteFactor(JobKey(ClusterName(name), turn), lease.epoch)
        ids = journal.intend(cycle, [Intent(action=action)], lease=lease, now=now)
        journal.settle(ids, [Outcome(action, Answer.DONE)], now=now)
        journal.release(lease, now=now)
    print(won)
"""


def test_two_processes_share_one_file_and_take_turns(url: str) -> None:
    """Both create the schema at once, then compete for the lease; nothing is lost, no epoch is given twice."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER, url, name, AT.isoformat()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for name in ("one", "two")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "open\n"
    for process in processes:
        process.stdin.write("go\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    won = [int(process.communicate(timeout=120)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    with Journal.open(url) as journal:
        history = journal.history(limit=1000)
        assert len(history) == sum(won) > 0
        epochs = [one.action.value for one in history]  # type: ignore[union-attr]
        assert len(set(epochs)) == len(epochs)
        last = journal.lease()
        assert last is not None
        assert last.epoch == sum(won)
        assert len({cycle.number for cycle in journal.cycles(limit=1000)}) == sum(won)


KILLED = """
import os, sys
from slurm_evo.store import Journal
journal = Journal.open(sys.argv[1])
with journal._write() as session:
    session.connection().exec_driver_sql("UPDATE lease SET holder = 'half'")
    os._exit(9)
"""


def test_a_killed_writer_leaves_all_or_nothing(journal: Journal, url: str) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, url], check=False, cwd=Path(__file__).parents[2])
    assert killed.returncode == 9
    assert held(journal, "b", now=later(0)).epoch == 1
    assert journal.lease() is not None
    database = sqlite3.connect(url.removeprefix("sqlite:///"))
    assert database.execute("SELECT holder FROM lease").fetchall() == [("b",)]
    database.close()
