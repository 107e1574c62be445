"""What the project promises of itself."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = {"slurm_evo": ".", "slurm_evo_daemon": "daemon", "slurm_evo_training": "gp_training"}


def test_setup_cfg_lists_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {
        ".".join(init.parent.relative_to(ROOT / room).parts)
        for package, room in ROOMS.items()
        for init in (ROOT / room / package).rglob("__init__.py")
    }
    assert listed == found


def test_the_cycle_fits_one_screen() -> None:
    text = (ROOT / "daemon/slurm_evo_daemon/cycle.py").read_text()
    body = text[text.index("def cycle(") :]
    assert len(body.splitlines()) <= 60


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
