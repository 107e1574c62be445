"""Owners are told of moves once, and only if the site sends mails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_string
from pathlib import Path
from threading import Thread

import pytest

from slurm_evo.model import ClusterName, ConfigError, JobKey, StoreError
from slurm_evo.store import Journal, TransferRecord
from slurm_evo_daemon.digest import FILE, message, send

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
MAIL = """#!/bin/sh
mail=$(cat)
case "$mail" in *"To: ${{REFUSED-nobody}}"*) echo "no such user" >&2; exit 67;; esac
printf '%s\\n---\\n' "$mail" >> {box}
"""


@pytest.fixture
def mailer(tmp_path: Path) -> Path:
    """A sendmail that writes into a file and refuses $REFUSED."""
    script = tmp_path / "sendmail"
    script.write_text(MAIL.format(box=tmp_path / "box"))
    script.chmod(0o755)
    return script


def moved(number: int, owner: str, ago_h: float, phase: str = "done") -> TransferRecord:
    """A move from far to near."""
    at = NOW - timedelta(hours=ago_h)
    return TransferRecord(
        job=JobKey(ClusterName("far"), number), to=ClusterName("near"), copy=number, phase=phase, closed=True,
        began=at, phase_since=at, fields="", image=None, site_factor=0, why="starts 600 s earlier", owner=owner,
    )  # fmt: skip


def journal_of(folder: Path, *records: TransferRecord) -> Journal:
    journal = Journal.open(f"sqlite:///{folder}/journal.sqlite")
    lease = journal.acquire("test", now=NOW, length_s=60)
    assert lease is not None
    for record in records:
        journal.write_transfer(record, lease=lease, now=NOW)
    return journal


def mails(folder: Path) -> list[str]:
    box = folder / "box"
    return box.read_text().split("---\n")[:-1] if box.exists() else []


def test_each_owner_hears_of_each_move_once(tmp_path: Path, mailer: Path) -> None:
    known = [moved(1, "ada", 2), moved(2, "bob", 1), moved(3, "ada", 1), moved(4, "ada", 1, "abandoned")]
    with journal_of(tmp_path, *known, moved(5, "", 1), moved(6, "ada", 30)) as journal:

        def tell(now: datetime) -> tuple[dict[str, int], dict[str, str]]:
            return send(journal.transfers_done, tmp_path, [str(mailer)], now=now, hours=24, domain="example.org")

        assert tell(NOW) == ({"ada": 2, "bob": 1}, {})
        assert tell(NOW + timedelta(minutes=5)) == ({}, {})
    first = message_from_string(mails(tmp_path)[0])
    assert first["To"] == "ada@example.org"
    assert first["Subject"] == "slurm-evo moved 2 of your waiting jobs"
    assert "far:1 -> near:1" in str(first.get_payload())
    assert "far:3 -> near:3" in str(first.get_payload())


def test_who_could_not_be_told_is_told_later(
    tmp_path: Path, mailer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with journal_of(tmp_path, moved(1, "ada", 23), moved(2, "bob", 1)) as journal:
        monkeypatch.setenv("REFUSED", "ada")
        sent, failed = send(journal.transfers_done, tmp_path, [str(mailer)], now=NOW, hours=24)
        assert sent == {"bob": 1}
        assert "67: no such user" in failed["ada"]
        monkeypatch.setenv("REFUSED", "nobody")
        later = NOW + timedelta(minutes=30)
        assert send(journal.transfers_done, tmp_path, [str(mailer)], now=later, hours=24) == ({"ada": 1}, {})


def test_a_move_that_ends_as_the_digest_is_made_is_told_by_the_next(tmp_path: Path, mailer: Path) -> None:
    with journal_of(tmp_path, moved(1, "ada", 0)) as journal:
        assert send(journal.transfers_done, tmp_path, [str(mailer)], now=NOW, hours=24) == ({}, {})
        later = NOW + timedelta(hours=1)
        assert send(journal.transfers_done, tmp_path, [str(mailer)], now=later, hours=24) == ({"ada": 1}, {})


@pytest.mark.parametrize("damaged", ["", "[1]", '{"ada": "yesterday"}', '{"ada": 3}', '{"ada": "2026-03-02"}'])
def test_a_damaged_memory_is_named_and_nobody_is_told(tmp_path: Path, mailer: Path, damaged: str) -> None:
    (tmp_path / FILE).write_text(damaged)
    with journal_of(tmp_path, moved(1, "ada", 1)) as journal, pytest.raises(ConfigError, match=FILE):
        send(journal.transfers_done, tmp_path, [str(mailer)], now=NOW, hours=24)
    assert mails(tmp_path) == []


def slurm_evo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurm_evo_daemon", *words, "--config", str(folder / "slurm-evo.toml")]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=dict(os.environ))


def test_the_command_shows_first_and_sends_only_what_the_site_set_up(tmp_path: Path, mailer: Path) -> None:
    at = datetime.now(UTC) - timedelta(hours=1)
    with journal_of(tmp_path) as journal:
        lease = journal.acquire("test", now=NOW, length_s=60)
        assert lease is not None
        ours = TransferRecord(
            job=JobKey(ClusterName("far"), 7), to=ClusterName("near"), copy=9, phase="done", closed=True, began=at,
            phase_since=at, fields="", image=None, site_factor=0, why="starts earlier", owner="ada",
        )  # fmt: skip
        journal.write_transfer(ours, lease=lease, now=NOW)
    config = tmp_path / "slurm-evo.toml"
    config.write_text(f'[store]\nstate_dir = "{tmp_path}"\n')
    shown = slurm_evo(tmp_path, "digest")
    assert "far:7 -> near:9" in shown.stdout
    assert "Nothing was sent" in shown.stdout
    refused = slurm_evo(tmp_path, "digest", "--send")
    assert refused.returncode == 2
    assert "digest.command" in refused.stderr
    config.write_text(f'[store]\nstate_dir = "{tmp_path}"\n[digest]\ncommand = ["{mailer}"]\n')
    sent = slurm_evo(tmp_path, "digest", "--send", "--json")
    assert json.loads(sent.stdout) == {"sent": True, "moves": {"ada": 1}, "failed": {}}
    assert json.loads(slurm_evo(tmp_path, "digest", "--send", "--json").stdout)["moves"] == {}
    assert len(mails(tmp_path)) == 1


def test_an_odd_login_name_is_one_address_and_keeps_no_other_owner_from_hearing(
    tmp_path: Path, mailer: Path
) -> None:
    with journal_of(tmp_path, moved(1, "a\nBcc: x", 1), moved(2, "ada,bob", 1), moved(3, "cyd", 1)) as journal:
        sent, failed = send(journal.transfers_done, tmp_path, [str(mailer)], now=NOW, hours=24, domain="x.org")
    assert (sent, list(failed)) == ({"ada,bob": 1, "cyd": 1}, ["a\nBcc: x"])
    first = message_from_string(mails(tmp_path)[0])
    assert first["To"] == '"ada,bob"@x.org'
    assert message("ada@y.org", [moved(1, "", 1)], "x.org")["To"] == "ada@y.org"


def test_nobody_is_told_where_that_cannot_be_kept(tmp_path: Path, mailer: Path) -> None:
    """Each call of the timer would tell it again."""
    (tmp_path / f"{FILE}.new").mkdir()
    with journal_of(tmp_path, moved(1, "ada", 1)) as journal, pytest.raises(StoreError, match="nobody"):
        send(journal.transfers_done, tmp_path, [str(mailer)], now=NOW, hours=24)
    assert mails(tmp_path) == []


def test_two_digests_at_once_tell_it_once(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\nsleep 1\ncat >> {tmp_path}/box\necho --- >> {tmp_path}/box\n")
    slow.chmod(0o755)
    found = []
    with journal_of(tmp_path, moved(1, "ada", 1)) as journal:

        def tell() -> None:
            found.append(send(journal.transfers_done, tmp_path, [str(slow)], now=NOW, hours=24)[0])

        both = [Thread(target=tell) for _ in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join()
    assert sorted(found, key=len) == [{}, {"ada": 1}]


def test_what_is_shown_is_what_its_reader_sees(tmp_path: Path) -> None:
    at = datetime.now(UTC) - timedelta(hours=1)
    with journal_of(tmp_path) as journal:
        lease = journal.acquire("test", now=NOW, length_s=60)
        assert lease is not None
        long = replace(moved(7, "ada", 0), phase_since=at, why="expected to start in 30 s there, " * 4)
        journal.write_transfer(long, lease=lease, now=NOW)
    (tmp_path / "slurm-evo.toml").write_text(f'[store]\nstate_dir = "{tmp_path}"\n')
    told = slurm_evo(tmp_path, "digest").stdout
    assert "--comment=slurm-evo:stay" in told
    assert long.why in told
    assert slurm_evo(tmp_path, "digest", "--hours", "1e9").returncode == 2
