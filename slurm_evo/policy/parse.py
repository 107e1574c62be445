"""Text to tree: infix or gplearn's prefix form, by one small recursive-descent parser."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches

from slurm_evo.model import PolicyError
from slurm_evo.policy.expression import ARITY, Call, Constant, Name, Node, depth, walk
from slurm_evo.policy.terminals import TERMINALS

MAX_DEPTH = 17
"""Koza's usual bound on programs; deeper ones are not read by people."""
MAX_SIZE = 127
"""Nodes."""

_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(.))", re.DOTALL)
_NAMES = {terminal.name for terminal in TERMINALS}


def parse(text: str) -> Node:
    """Read an expression.

    Raises:
        PolicyError: names the position and, for an unknown name, a near one.
    """
    reader = _Reader(text)
    node = reader.sum()
    if reader.token is not None:
        raise reader.error(f"did not expect {reader.token!r}")
    size = sum(1 for _ in walk(node))
    if depth(node) > MAX_DEPTH or size > MAX_SIZE:
        raise PolicyError(
            f"the expression is too large: {size} nodes in {depth(node)} levels, "
            f"at most {MAX_SIZE} in {MAX_DEPTH} are read"
        )
    return node


class _Reader:
    """One token ahead; ``at`` is its position."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.level = 0
        self.leaves = 0
        self.token: str | None = None
        self.at = 0
        self.step()

    def step(self) -> None:
        rest = self.text[self.end :]
        if not rest.strip():
            self.token, self.at = None, len(self.text)
            return
        match = _TOKEN.match(rest)
        assert match is not None  # noqa: S101 - the last alternative takes any character
        self.token = match.group(1) or match.group(2) or match.group(3)
        self.at = self.end + match.end() - len(self.token)
        self.end += match.end()

    def error(self, message: str) -> PolicyError:
        return PolicyError(f"{message} at position {self.at + 1} of {self.text!r}")

    def expect(self, token: str) -> None:
        if self.token != token:
            raise self.error(f"expected {token!r}, not {self.token or 'the end'!r}")
        self.step()

    def sum(self) -> Node:
        node = self.product()
        while self.token in ("+", "-"):
            operator = "add" if self.token == "+" else "sub"
            self.step()
            node = Call(operator, (node, self.product()))
        return node

    def product(self) -> Node:
        node = self.factor()
        while self.token in ("*", "/"):
            operator = "mul" if self.token == "*" else "div"
            self.step()
            node = Call(operator, (node, self.factor()))
        return node

    def factor(self) -> Node:
        self.level += 1
        if self.level > MAX_SIZE:
            raise PolicyError("the expression is nested too deeply")
        try:
            return self._factor()
        finally:
            self.level -= 1

    def _factor(self) -> Node:
        token = self.token
        if token is None:
            raise self.error("the expression ends too early")
        if token == "(":
            self.step()
            node = self.sum()
            self.expect(")")
            return node
        if token == "-":
            self.step()
            inner = self.factor()
            return Constant(-inner.value) if isinstance(inner, Constant) else Call("neg", (inner,))
        self._count_leaf()
        if token[0].isdigit() or token[0] == ".":
            value = float(token)
            if not math.isfinite(value):
                raise self.error(f"{token} is too large a number")
            self.step()
            return Constant(value)
        if not (token[0].isalpha() or token[0] == "_"):
            raise self.error(f"did not expect {token!r}")
        return self._named(token)

    def _count_leaf(self) -> None:
        """Stop before a tree is so deep that walking it fails."""
        self.leaves += 1
        if self.leaves > 2 * MAX_SIZE:
            raise PolicyError(
                f"the expression is too large: at most {MAX_SIZE} nodes in {MAX_DEPTH} levels are read"
            )

    def _named(self, token: str) -> Node:
        if token in ARITY:
            self.step()
            return self._call(token)
        if token not in _NAMES:
            near = get_close_matches(token, sorted(_NAMES | set(ARITY)), 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(_NAMES))}"
            raise self.error(f"unknown name {token!r}{hint}")
        self.step()
        return Name(token)

    def _call(self, operator: str) -> Node:
        self.expect("(")
        arguments = [self.sum()]
        while self.token == ",":
            self.step()
            arguments.append(self.sum())
        if len(arguments) != ARITY[operator]:
            raise self.error(f"{operator} takes {ARITY[operator]} arguments, not {len(arguments)}")
        self.expect(")")
        return Call(operator, tuple(arguments))
