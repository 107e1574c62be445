"""slurm-evo's plugins on a controller: what putting them in or taking them out changes, and what they report.

`Site` and the texts are pure; `carry_out` does what was shown. Every change is a `Change` that can be printed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from slurm_evo.model import ConfigError
from slurm_evo.slurm.plugin_status import PLUGIN

LIBRARY = "site_factor_evo.so"
BEGIN, END = "{mark} >>> slurm-evo plugins (slurm-evo install-plugins writes this)", "{mark} <<< slurm-evo plugins"
MANIFEST = "installed.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where things are on one controller."""

    cluster: str
    slurm_conf: Path
    plugin_dir: Path
    """PluginDir of slurm.conf(5)."""
    folder: Path
    """Where the daemon writes and the plugins read."""
    library: Path | None
    """The plugin as it was built; None: only Lua."""
    module: Path | None
    """slurm_evo.lua; None: only the C plugin."""
    pin: bool = False
    """The Lua hook pins federated jobs to their origin."""

    @property
    def manifest(self) -> Path:
        """What was put where."""
        return self.folder / MANIFEST

    @property
    def script(self) -> Path:
        """Slurm looks for it beside slurm.conf (job_submit_plugins, lua)."""
        return self.slurm_conf.parent / "job_submit.lua"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is done; ``text`` is the new content of a file, ``source`` what is copied."""

    kind: Literal["folder", "write", "copy", "remove"]
    path: Path
    why: str
    text: str = ""
    source: Path | None = None
    lines: tuple[str, ...] = ()
    """For people: what is added (+) to a configuration or taken out of it (-)."""

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "kind": self.kind,
            "path": str(self.path),
            "why": self.why,
            "source": str(self.source) if self.source else None,
            "lines": list(self.lines),
        }


def with_block(text: str, lines: Sequence[str], mark: str = "#") -> str:
    """A configuration with our lines at its end, in place of earlier ones of ours."""
    plain = without_block(text, mark)
    if plain and not plain.endswith("\n"):
        plain += "\n"
    return plain + "".join(f"{line}\n" for line in (BEGIN.format(mark=mark), *lines, END.format(mark=mark)))


def without_block(text: str, mark: str = "#") -> str:
    """A configuration without our lines; byte for byte what it was before them.

    Raises:
        ConfigError: our first line is there and our last is not: somebody edited in between.
    """
    begin, end = BEGIN.format(mark=mark) + "\n", END.format(mark=mark) + "\n"
    before, found, rest = text.partition(begin)
    if not found:
        return text
    _, found, after = rest.partition(end)
    if not found:
        raise ConfigError(
            f"the line {end.strip()!r} is missing behind {begin.strip()!r}: put it back or remove both"
        )
    return before + after


def value_of(conf: str, key: str) -> str:
    """A value of slurm.conf(5) as the file has it, the last one; empty if it is not there. Names ignore case."""
    found = ""
    for raw in conf.splitlines():
        name, equals, value = raw.split("#", 1)[0].strip().partition("=")
        if equals and name.strip().lower() == key.lower():
            found = value.strip()
    return found


def conf_lines(site: Site, conf: str) -> tuple[str, ...]:
    """What slurm.conf needs.

    Raises:
        ConfigError: another plugin is in that place.
    """
    plain = without_block(conf)
    lines: list[str] = []
    if site.library is not None:
        other = value_of(plain, "PrioritySiteFactorPlugin")
        if other and other not in ("none", "site_factor/none"):
            raise ConfigError(
                f"{site.slurm_conf} has PrioritySiteFactorPlugin={other}: there can be only one; remove that line"
            )
        lines += [f"PrioritySiteFactorPlugin={PLUGIN}", f"PrioritySiteFactorParameters=dir={site.folder}"]
    if site.module is not None:
        others = value_of(plain, "JobSubmitPlugins")
        if not others:
            lines.append("JobSubmitPlugins=lua")
        elif "lua" not in others.replace("job_submit/", "").split(","):
            raise ConfigError(
                f"{site.slurm_conf} has JobSubmitPlugins={others}: add lua to that line "
                f"(JobSubmitPlugins={others},lua), then run this again"
            )
    return tuple(lines)


def hook_lines(site: Site) -> tuple[str, ...]:
    """The two lines of job_submit.lua; a site's own functions stay above them."""
    options = [f'dir = "{site.folder}"']
    if site.library is None:
        options.append("site_factor = true")
    if site.pin:
        options.append(f'pin = "{site.cluster}"')
    module = site.slurm_conf.parent / "slurm_evo.lua"
    return (
        f'local ok, evo = pcall(dofile, "{module}")',
        f"if ok then evo.hook_job_submit({{ {', '.join(options)} }}) end",
    )


EMPTY_SCRIPT = (
    "function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end\n"
    "function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end\n"
)


def installing(site: Site) -> list[Change]:
    """Everything that putting the plugins in does, in order; what is already so is left out.

    Raises:
        ConfigError: something is in the way.
    """
    conf = _read(site.slurm_conf)
    lines = conf_lines(site, conf)
    changes = []
    if not site.folder.is_dir():
        changes.append(Change("folder", site.folder, "the daemon writes here, the plugins read here"))
    if site.library is not None:
        changes += _copied(site.library, site.plugin_dir / LIBRARY, "the plugin for slurmctld")
    if site.module is not None:
        changes += _copied(site.module, site.slurm_conf.parent / "slurm_evo.lua", "the Lua module")
        script = _read(site.script) if site.script.exists() else EMPTY_SCRIPT
        changes += _written(site.script, script, with_block(script, hook_lines(site), "--"), "the two-line hook")
    changes += _written(site.slurm_conf, conf, with_block(conf, lines) if lines else conf, "slurmctld loads them")
    return changes


def uninstalling(site: Site) -> list[Change]:
    """Everything that taking them out does: our lines and our files, nothing that was changed since.

    Raises:
        ConfigError: our lines were half removed.
    """
    changes: list[Change] = []
    conf = _read(site.slurm_conf)
    changes += _written(site.slurm_conf, conf, without_block(conf), "slurmctld no longer loads them")
    if site.script.exists():
        script = _read(site.script)
        plain = without_block(script, "--")
        if plain == EMPTY_SCRIPT and plain != script:
            changes.append(Change("remove", site.script, "it held nothing but our hook"))
        else:
            changes += _written(site.script, script, plain, "the hook is taken out")
    for name, digest in _installed(site).items():
        path = Path(name)
        if path.is_file() and _digest(path) == digest:
            changes.append(Change("remove", path, "put there by install-plugins"))
    for name in ("policy", "policy.lua", "context", "status.json", MANIFEST):
        if (site.folder / name).exists():
            changes.append(Change("remove", site.folder / name, "only the plugins read it"))
    return changes


def left_behind(site: Site) -> list[str]:
    """Files that were installed and are no longer what was installed: not ours to remove."""
    return [
        name for name, digest in _installed(site).items() if Path(name).is_file() and _digest(Path(name)) != digest
    ]


def carry_out(changes: Iterable[Change], site: Site, *, now: datetime, owners: tuple[str, str]) -> list[Path]:
    """Do it. Each file that is replaced is first copied to NAME.slurm-evo-DATE beside it.

    Args:
        changes: from `installing` or `uninstalling`.
        site: where.
        now: for the names of the backups.
        owners: user and group of the folder: the daemon's user, slurmctld's group.

    Returns:
        The backups.

    Raises:
        ConfigError: a file could not be written; what was done before it stays done, and is shown.
    """
    backups: list[Path] = []
    copied = dict(_installed(site))
    for change in changes:
        try:
            backup = _apply(change, now, owners)
        except OSError as failure:
            raise ConfigError(
                f"{change.path}: {failure.strerror or failure}. Done before it: "
                f"{len(backups)} files replaced, their backups: {', '.join(map(str, backups)) or 'none'}"
            ) from failure
        if backup is not None:
            backups.append(backup)
        if change.kind == "copy":
            copied[str(change.path)] = _digest(change.path)
    if any(change.kind in ("folder", "copy") for change in changes):
        site.manifest.write_text(json.dumps(copied, indent=1) + "\n", encoding="utf-8")
    if any(change.path == site.manifest for change in changes):  # the last thing that is taken out
        with suppress(OSError):
            site.folder.rmdir()
    return backups


def _apply(change: Change, now: datetime, owners: tuple[str, str]) -> Path | None:
    path, backup = change.path, None
    if change.kind == "folder":
        path.mkdir(parents=True)
        path.chmod(0o2775)
        shutil.chown(path, *owners)
        return None
    if path.exists() and change.kind == "write":
        backup = path.with_name(f"{path.name}.slurm-evo-{now:%Y%m%d-%H%M%S}")
        shutil.copy2(path, backup)
    if change.kind == "remove":
        path.unlink()
        return backup
    aside = path.with_name(f".{path.name}.slurm-evo-new")
    if change.source is not None:
        shutil.copyfile(change.source, aside)
        aside.chmod(0o644)
    else:
        aside.write_text(change.text, encoding="utf-8")
        aside.chmod(0o644)
        if path.exists():
            facts = path.stat()
            os.chown(aside, facts.st_uid, facts.st_gid)
            aside.chmod(facts.st_mode & 0o7777)
    aside.replace(path)
    return backup


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise ConfigError(f"{path} cannot be read: {failure}") from failure


def _copied(source: Path, path: Path, why: str) -> list[Change]:
    if not source.is_file():
        raise ConfigError(f"{source} is missing: build it with slurm-conf/plugins/build --from-distribution")
    if path.is_file() and path.read_bytes() == source.read_bytes():
        return []
    return [Change("copy", path, why, source=source)]


def _written(path: Path, before: str, after: str, why: str) -> list[Change]:
    if before == after and path.exists():
        return []
    old, new = before.splitlines(), after.splitlines()
    lines = (*(f"- {line}" for line in old if line not in new), *(f"+ {line}" for line in new if line not in old))
    return [Change("write", path, why, text=after, lines=lines)]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _installed(site: Site) -> dict[str, str]:
    try:
        found = json.loads(site.manifest.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return {}
    return {str(name): str(digest) for name, digest in found.items()} if isinstance(found, dict) else {}
