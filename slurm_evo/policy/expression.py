"""The tree of an expression: what it is made of, how it reads.

Operators have gplearn's protected semantics, so that an expression means the same wherever it came from:
``div`` is 1 where the divisor is within 0.001 of 0; ``log`` is of the absolute value, 0 within 0.001 of 0;
``sqrt`` is of the absolute value; ``inv`` is 0 within 0.001 of 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PROTECTED = 0.001
"""gplearn's distance from zero inside which division, logarithm and inverse are replaced."""

ARITY = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "max": 2, "min": 2,
    "sqrt": 1, "log": 1, "abs": 1, "neg": 1, "inv": 1,
}  # fmt: skip
"""Every operator with its number of arguments."""

_INFIX = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "div": ("/", 2)}
"""Sign and binding strength."""
_LATEX = {
    "sqrt": r"\sqrt{%s}",
    "log": r"\ln\left|%s\right|",
    "abs": r"\left|%s\right|",
    "inv": r"\frac{1}{%s}",
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A finite number."""

    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """A terminal."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operator with its arguments."""

    operator: str
    arguments: tuple[Node, ...]


Node = Constant | Name | Call


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, the node first (prefix order)."""
    yield node
    if isinstance(node, Call):
        for argument in node.arguments:
            yield from walk(argument)


def depth(node: Node) -> int:
    """Levels: a leaf has 1."""
    return 1 + max(map(depth, node.arguments)) if isinstance(node, Call) else 1


def text(node: Node) -> str:
    """Infix, with no parentheses that are not needed; reads back as the same tree."""
    return _text(node)[0]


def _text(node: Node) -> tuple[str, int]:
    """The text and how strongly it binds: 1 sums, 2 products, 3 everything else."""
    if isinstance(node, Name):
        return node.name, 3
    if isinstance(node, Constant):
        return number(node.value), 3 if node.value >= 0 else 0
    if node.operator == "neg":
        inner, strength = _text(node.arguments[0])
        # A minus before a number would read back as a negative number.
        plain = strength >= 3 and not isinstance(node.arguments[0], Constant)
        return (f"-{inner}" if plain else f"neg({inner})"), 0
    if node.operator not in _INFIX:
        return f"{node.operator}({', '.join(text(argument) for argument in node.arguments)})", 3
    sign, strength = _INFIX[node.operator]
    (left, left_strength), (right, right_strength) = map(_text, node.arguments)
    if left_strength < strength:
        left = f"({left})"
    if right_strength <= strength:
        right = f"({right})"
    return f"{left} {sign} {right}", strength


def number(value: float) -> str:
    """The shortest text that reads back as the same number."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _power_of_ten(shown: str) -> str:
    """1e-07 would be read as 1 e - 07."""
    digits, e, power = shown.partition("e")
    return rf"{digits} \cdot 10^{{{int(power)}}}" if e else digits


def latex(node: Node, names: dict[str, str]) -> str:
    """For a formula: ``names`` gives each terminal's symbol."""
    if isinstance(node, Name):
        return names.get(node.name, rf"\mathrm{{{node.name}}}".replace("_", r"\_"))
    if isinstance(node, Constant):
        return _power_of_ten(f"{node.value:.6g}")
    parts = [latex(argument, names) for argument in node.arguments]
    match node.operator:
        case "div":
            return rf"\frac{{{parts[0]}}}{{{parts[1]}}}"
        case "mul":
            left, right = (
                rf"\left({part}\right)" if _text(argument)[1] < 2 else part
                for part, argument in zip(parts, node.arguments, strict=True)
            )
            return rf"{left} \cdot {right}"
        case "add":
            return f"{parts[0]} + {parts[1]}"
        case "sub":
            right = rf"\left({parts[1]}\right)" if _text(node.arguments[1])[1] <= 1 else parts[1]
            return f"{parts[0]} - {right}"
        case "neg":
            return rf"-\left({parts[0]}\right)"
        case "max" | "min":
            return rf"\{node.operator}\left({parts[0]}, {parts[1]}\right)"
        case _:
            return _LATEX[node.operator] % parts[0]
