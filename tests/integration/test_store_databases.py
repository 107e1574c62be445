"""The journal on real PostgreSQL and MariaDB servers: private ones, on a loopback port, gone afterwards."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from journal_stories import AT, EVERY_ACTION, JournalStories, Reopen, held, later
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from slurm_evo.model import LeaseLost, StoreError
from slurm_evo.store import Intent, Journal

PASSWORD = "p@ss:w/rd %1"  # every character that a URL would need quoted
REQUIRED = os.environ.get("CI") == "true" or os.environ.get("SLURM_EVO_REQUIRE_SLURM") == "1"


@dataclass(frozen=True)
class Server:
    """A running database server.

    Args:
        url: what an operator would configure.
        password_file: of the URL's user.
        empty: drops everything in the database.
    """

    url: str
    password_file: Path
    empty: Callable[[], None]

    def open(self) -> Journal:
        return Journal.open(self.url, password_file=self.password_file)


class NotYet(Exception):
    """A server is still starting."""


def give_up(why: str) -> NoReturn:
    """Skip; or fail where the databases must be tested."""
    if REQUIRED:
        pytest.fail(f"{why}: install with tests/packages.sh")
    pytest.skip(f"{why}: install with tests/packages.sh")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def as_user(user: str) -> tuple[str, ...]:
    """Neither server runs as root."""
    return ("runuser", "-u", user, "--") if os.geteuid() == 0 else ()


@contextmanager
def private_folder(user: str) -> Iterator[Path]:
    """Not pytest's tmp_path: its parents are closed to other users, and its names too long for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-evo-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, user, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(command: Sequence[str], log: Path, answers: Callable[[], object]) -> Iterator[None]:
    """The server, from its first answer until the end of the block."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        for _ in range(300):
            if process.poll() is not None:
                pytest.fail(f"{command} ended with {process.returncode}: {log.read_text()}")
            try:
                answers()
                break
            except (SQLAlchemyError, NotYet) as failure:
                why = str(failure)
            time.sleep(0.1)
        else:
            pytest.fail(f"{command} did not answer in 30 s: {why}\n{log.read_text()}")
        yield
    finally:
        process.terminate()  # runuser passes it on to the server
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def asks(url: str, *statements: str) -> None:
    """Send statements as the server's administrator."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
    finally:
        engine.dispose()


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not homes:
        give_up("no PostgreSQL server here")
    binaries, port, notes = homes[-1].parent, free_port(), tmp_path_factory.mktemp("postgresql")
    with private_folder("postgres") as folder:
        run, data = as_user("postgres"), folder / "data"
        (folder / "password").write_text("admin\n")
        subprocess.run(
            [*run, binaries / "initdb", "-D", data, "-U", "admin", "-A", "scram-sha-256",
             f"--pwfile={folder}/password", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True, capture_output=True, cwd=folder,
        )  # fmt: skip
        serve = [*run, str(binaries / "postgres"), "-D", str(data), "-k", str(folder), "-p", str(port), "-F"]
        admin = f"postgresql+psycopg://admin:admin@127.0.0.1:{port}/"
        with running(serve, notes / "log", lambda: asks(admin + "postgres", "SELECT 1")):
            asks(
                admin + "postgres",
                f"CREATE ROLE evo LOGIN PASSWORD '{PASSWORD}'".replace(":", r"\:"),
                "CREATE DATABASE journal OWNER evo",
            )
            url = f"postgresql://evo@127.0.0.1:{port}/journal"
            empty = ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public AUTHORIZATION evo")
            yield server(notes, url, lambda: asks(admin + "journal", *empty))


@contextmanager
def mariadbd(notes: Path, *options: str) -> Iterator[Server]:
    daemon = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
    installer = shutil.which("mariadb-install-db")
    if not daemon or not installer:
        give_up("no MariaDB server here")
    port = free_port()
    with private_folder("mysql") as folder:
        run, data = as_user("mysql"), folder / "data"
        subprocess.run(
            [*run, installer, "--no-defaults", f"--datadir={data}", "--skip-test-db",
             "--auth-root-authentication-method=normal"],
            check=True, capture_output=True, cwd=folder,
        )  # fmt: skip
        serve = [*run, daemon, "--no-defaults", f"--datadir={data}", f"--socket={folder}/s", f"--port={port}",
                 "--bind-address=127.0.0.1", f"--pid-file={folder}/pid", *options]  # fmt: skip
        admin = f"mariadb+pymysql://root@localhost/?unix_socket={folder}/s"

        if any(option.startswith("--version=") for option in options):
            admin = admin.replace("mariadb+", "mysql+")

        def answers() -> None:
            if (folder / "s").is_socket():  # PyMySQL leaves a socket open when nobody listens
                asks(admin, "SELECT 1")
            else:
                raise NotYet

        with running(serve, notes / "log", answers):
            asks(
                admin,
                f"CREATE USER evo@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'".replace(":", r"\:"),
                "CREATE DATABASE journal",
                "GRANT ALL ON journal.* TO evo@'127.0.0.1'",
            )
            url = f"mariadb://evo@127.0.0.1:{port}/journal"
            yield server(notes, url, lambda: asks(admin, "DROP DATABASE journal", "CREATE DATABASE journal"))


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with mariadbd(tmp_path_factory.mktemp("mariadb")) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def posing_as_mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """MariaDB that gives itself out as MySQL."""
    with mariadbd(tmp_path_factory.mktemp("mysql"), "--version=5.7.10") as running_server:
        yield running_server


def server(notes: Path, url: str, empty: Callable[[], None]) -> Server:
    (notes / "password").write_text(PASSWORD + "\n")
    return Server(url, notes / "password", empty)


class ServerStories(JournalStories):
    """All promises, and those that only a server can break. A subclass gives the `server`."""

    @pytest.fixture
    def reopen(self, server: Server) -> Iterator[Reopen]:
        server.empty()
        opened: list[Journal] = []

        def reopen() -> Journal:
            opened.append(server.open())
            return opened[-1]

        yield reopen
        for one in opened:
            one.close()

    @pytest.fixture
    def journal(self, reopen: Reopen) -> Journal:
        return reopen()

    def test_a_wrong_password_is_explained_and_not_shown(self, server: Server, tmp_path: Path) -> None:
        wrong = tmp_path / "wrong"
        wrong.write_text("hunter2\n")
        with pytest.raises(
            StoreError, match=r"evo:\*\*\*@127\.0\.0\.1:\d+/journal could not be opened"
        ) as refused:
            Journal.open(server.url, password_file=wrong)
        assert "hunter2" not in str(refused.value)
        assert PASSWORD not in str(refused.value)

    def test_the_password_is_not_part_of_the_url_shown(self, journal: Journal) -> None:
        assert PASSWORD not in journal.url
        assert "***" in journal.url

    def test_processes_that_open_an_empty_database_at_once_make_it_once(self, reopen: Reopen) -> None:
        failures: list[BaseException] = []

        def open_it() -> None:
            try:
                reopen().begin_cycle(now=AT, lease=None)
            except BaseException as failure:  # noqa: BLE001  shown below, in the test's own thread
                failures.append(failure)

        threads = [threading.Thread(target=open_it) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert len(reopen().cycles()) == 4

    def test_of_many_that_ask_at_once_one_gets_the_lease(self, journal: Journal, reopen: Reopen) -> None:
        others = [reopen() for _ in range(4)]
        won: list[str] = []
        gate = threading.Barrier(len(others))

        def ask(place: int) -> None:
            gate.wait(30)
            if others[place].acquire(f"holder{place}", now=AT, length_s=60):
                won.append(f"holder{place}")

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(others))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        lease = journal.lease()
        assert lease is not None
        assert won == [lease.holder]
        assert lease.epoch == 1

    def test_nobody_takes_the_lease_between_the_fence_and_the_commit(
        self, journal: Journal, reopen: Reopen
    ) -> None:
        """A writer passed the fence; the taker waits, so that what was intended is seen by whoever comes next."""
        lease = held(journal, "a")
        cycle = journal.begin_cycle(now=AT, lease=lease)
        other = reopen()
        order: list[str] = []

        def take() -> None:
            held(other, "b", now=later(60))
            order.append("taken")

        from slurm_evo.store.lease import fence

        taker = threading.Thread(target=take)
        with journal._write() as session:
            fence(session, lease, later(59))
            taker.start()
            taker.join(0.5)
            order.append("committed")
        taker.join(60)
        assert order == ["committed", "taken"]
        with pytest.raises(LeaseLost):
            journal.intend(cycle, [Intent(action=EVERY_ACTION[0])], lease=lease, now=later(59))

    def test_a_connection_that_was_cut_is_made_again(self, journal: Journal, server: Server) -> None:
        held(journal)
        self.cut(server)
        assert journal.lease() is not None

    def cut(self, server: Server) -> None:
        """End the journal's idle connections, as a restarted server or a firewall does."""
        raise NotImplementedError


class TestOnPostgresql(ServerStories):
    @pytest.fixture
    def server(self, postgresql: Server) -> Server:
        return postgresql

    def cut(self, server: Server) -> None:
        with server.open() as other, other._engine.connect() as connection:
            ours = "usename = 'evo' AND pid <> pg_backend_pid()"
            connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}"))  # noqa: S608


class TestOnMariadb(ServerStories):
    @pytest.fixture
    def server(self, mariadb: Server) -> Server:
        return mariadb

    def cut(self, server: Server) -> None:
        with server.open() as other, other._engine.connect() as connection:
            own = connection.execute(text("SELECT CONNECTION_ID()")).scalar()
            for row in connection.execute(text("SELECT id FROM information_schema.processlist")).all():
                if row.id != own:
                    connection.execute(text(f"KILL {row.id}"))


@pytest.mark.parametrize("kind", ["mariadb", "mysql", "mysql+pymysql"])
def test_mysql_is_refused_with_a_sentence(posing_as_mysql: Server, kind: str) -> None:
    """It has no INSERT ... RETURNING; said before anything is written."""
    url = posing_as_mysql.url.replace("mariadb", kind)
    with pytest.raises(StoreError, match=r"could not be opened: MySQL version \S+ is not a MariaDB variant"):
        Journal.open(url, password_file=posing_as_mysql.password_file)


def test_the_older_name_of_mariadb_is_understood(mariadb: Server) -> None:
    mariadb.empty()
    with Journal.open(mariadb.url.replace("mariadb", "mysql"), password_file=mariadb.password_file) as journal:
        assert held(journal).epoch == 1
