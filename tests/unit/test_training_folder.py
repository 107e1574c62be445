"""Where results go: tried first, one run at a time, all files or none."""

import errno
import os

import pytest

from slurm_evo.model import ConfigError
from slurm_evo_training.folder import held, put


def test_a_folder_that_stays_empty_is_removed_and_one_that_was_there_is_not(tmp_path):
    with held(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()
    with held(tmp_path):
        pass
    assert tmp_path.is_dir()


def test_two_runs_do_not_share_a_folder(tmp_path):
    with held(tmp_path), pytest.raises(ConfigError, match="another training works in"), held(tmp_path):
        pass
    with held(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written: File exists"), held(tmp_path / "file"):
        pass


def test_a_full_disk_leaves_the_results_that_were_there(tmp_path):
    (tmp_path / "front.json").write_text("old")

    def write(folder):
        (folder / "front.json").write_text("new")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ConfigError, match="No space left on device"):
        put(tmp_path, write)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("front.json", "old")]


def test_results_replace_those_that_were_there(tmp_path):
    (tmp_path / "front.json").write_text("old")
    put(tmp_path, lambda folder: (folder / "front.json").write_text("new"))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("front.json", "new")]
