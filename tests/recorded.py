"""Answers recorded from real fleets (tests/golden/slurm), played back through the ports' own transports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from slurm_evo.slurm.runner import Ran

GOLDEN = Path(__file__).parent / "golden" / "slurm"
RELEASES = ("24.11", "26.05")


def text(release: str, cluster: str, name: str) -> str:
    return (GOLDEN / release / cluster / name).read_text(encoding="utf-8")


def answer(release: str, cluster: str, name: str) -> Any:
    return json.loads(text(release, cluster, name))


class RecordedRunner:
    """A Runner that answers as the fleet of one release did; ``instead`` replaces single answers.

    Keys of ``instead`` are what the command line contains, values a Ran or an error to raise.
    """

    def __init__(self, release: str, cluster: str = "alpha", **instead: Ran | Exception) -> None:
        self.release = release
        self.cluster = cluster
        self.instead: dict[str, Ran | Exception] = dict(instead)
        self.asked: list[str] = []
        self.environments: list[Mapping[str, str]] = []

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> Ran:  # noqa: ARG002 - a Runner
        line = " ".join(argv)
        self.asked.append(line)
        self.environments.append(env)
        for part, told in self.instead.items():
            if part in line:
                if isinstance(told, Exception):
                    raise told
                return told
        files = {
            "squeue": "squeue.json",
            "sprio": "sprio.txt",
            "show config": "config.txt",
            "show federation": "federation.txt",
            "show partitions": "partitions.txt",
            "show nodes": "nodes.json",
            "show assoc": "assoc.txt",
            "show qos": "qos.txt",
        }
        for part, file in files.items():
            if part in line:
                return Ran(0, text(self.release, self.cluster, file), "")
        return Ran(0, "", "")


def recorded_slurmrestd(
    release: str, seen: list[httpx2.Request] | None = None, **instead: Any
) -> httpx2.MockTransport:
    """A transport that answers GET requests as alpha's slurmrestd did, and every POST with success.

    Keys of ``instead`` are parts of the path, values a Response or an error to raise.
    """
    files = {
        "/openapi.json": "rest_openapi.json",
        "/diag/": "rest_diag.json",
        "/conf": "rest_conf.json",
        "/partitions/": "rest_partitions.json",
        "/nodes/": "nodes.json",
        "/jobs/": "squeue.json",
        "/associations/": "rest_associations.json",
        "/qos/": "rest_qos.json",
    }

    def handle(request: httpx2.Request) -> httpx2.Response:
        if seen is not None:
            seen.append(request)
        path = request.url.path
        for part, told in instead.items():
            if part in path:
                if isinstance(told, Exception):
                    raise told
                response: httpx2.Response = told
                return response
        if request.method == "POST":
            return httpx2.Response(200, json={"errors": [], "warnings": []})
        for part, file in files.items():
            if path.endswith(part):
                return httpx2.Response(200, text=text(release, "alpha", file))
        return httpx2.Response(404, text="Unable to find requested URL endpoint.")

    return httpx2.MockTransport(handle)
