"""Log lines: JSON for machines, readable ones on a terminal, and no secrets in tracebacks."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from slurm_evo import telemetry


@pytest.fixture(autouse=True)
def _defaults_afterwards() -> Iterator[None]:
    yield
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def fail(password: str) -> None:
    raise ValueError(f"a wrong password of {len(password)} letters")


def logged(stream: io.StringIO, *, json: bool | None = None) -> str:
    """One failure, with a local variable that must not be seen."""
    log = telemetry.configure(stream, json=json)
    secret = "hunter2"
    try:
        fail(secret)
    except ValueError:
        log.exception("cycle.held", why="«γ» did not answer")
    return stream.getvalue()


def test_a_pipe_gets_one_json_object_a_line() -> None:
    out = io.StringIO()
    log = telemetry.configure(out)
    log.info("cycle.done", moves=3, seconds={"observe": 0.1})
    log.warning("lease.lost", why="«b» took it\nat noon")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["event"], first["level"], first["moves"]) == ("cycle.done", "info", 3)
    assert first["seconds"] == {"observe": 0.1}
    assert first["timestamp"].endswith("Z")
    assert (second["level"], second["why"]) == ("warning", "«b» took it\nat noon")


def test_a_value_that_is_no_json_is_still_logged() -> None:
    out = io.StringIO()
    telemetry.configure(out).info("x", value=frozenset({"alpha"}))
    assert "alpha" in json.loads(out.getvalue())["value"]


def test_a_terminal_gets_readable_lines_without_colours() -> None:
    out = Terminal()
    telemetry.configure(out).info("cycle.done", moves=3)
    assert "cycle.done" in out.getvalue()
    assert "moves=3" in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert not out.getvalue().startswith("{")


def test_the_form_can_be_chosen() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    telemetry.configure(terminal, json=True).info("x")
    assert json.loads(terminal.getvalue())["event"] == "x"
    telemetry.configure(pipe, json=False).info("x")
    assert not pipe.getvalue().startswith("{")


def test_details_for_developers_are_left_out() -> None:
    out = io.StringIO()
    telemetry.configure(out).debug("noise")
    assert out.getvalue() == ""


def test_what_is_bound_to_the_context_is_in_every_line() -> None:
    out = io.StringIO()
    log = telemetry.configure(out)
    with structlog.contextvars.bound_contextvars(cycle=7):
        log.info("x")
    log.info("y")
    assert [json.loads(line).get("cycle") for line in out.getvalue().splitlines()] == [7, None]


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_traceback_is_logged_without_local_variables(stream: type[io.StringIO]) -> None:
    text = logged(stream())
    assert "ValueError: a wrong password of 7 letters" in text
    assert "in fail" in text
    assert "hunter2" not in text


def test_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.configure().info("x")
    seen = capsys.readouterr()
    assert json.loads(seen.err)["event"] == "x"
    assert seen.out == ""
