"""A policy as a Lua module, for Slurm's job_submit/lua (Lua 5.1 to 5.4, whatever Slurm was built with).

The module returns a table: ``version``, ``id``, ``text``, and ``score(f)``, where ``f`` has a field for every
terminal. The function repeats `plain.score`, protected operators and the treatment of NaN and overflow included.
Every number is written with a point or an exponent: Lua 5.3 and later would calculate with whole numbers
otherwise, and those overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_evo.policy.compact import policy_id
from slurm_evo.policy.expression import PROTECTED, Constant, Name, Node, walk
from slurm_evo.policy.terminals import TERMINALS

if TYPE_CHECKING:
    from slurm_evo.policy.policy import Policy

VERSION = 1
_SIGNS = {"add": "+", "sub": "-", "mul": "*"}
_OPERATORS = {
    "div": f"function(x, y) if abs(y) > {PROTECTED!r} then return x / y end return 1.0 end",
    "max": "function(x, y) if y > x or x ~= x then return y end return x end",
    "min": "function(x, y) if y < x or x ~= x then return y end return x end",
    "sqrt": "function(x) return math.sqrt(abs(x)) end",
    "log": f"function(x) if abs(x) > {PROTECTED!r} then return math.log(abs(x)) end return 0.0 end",
    "inv": f"function(x) if abs(x) > {PROTECTED!r} then return 1.0 / x end return 0.0 end",
}


def export(policy: Policy) -> str:
    """The module's source. The same policy always gives the same text."""
    used = [terminal for terminal in TERMINALS if terminal.name in policy.terminals]
    operators = {getattr(node, "operator", "") for node in walk(policy.tree)}
    lines = [
        "-- A slurm-evo policy. Written by slurm-evo; do not edit.",
        f"-- {policy.text}",
        "local abs = math.abs",
        *(f"local {name} = {body}" for name, body in _OPERATORS.items() if name in operators),
        "local LARGEST = 1.7976931348623157e308",
        "local M = {",
        f"  version = {VERSION},",
        f'  id = "{policy_id(policy)}",',
        f'  text = "{policy.text}",',
        "}",
        "-- Larger runs first. The fields of f:",
        *(f"--   {terminal.name} [{terminal.unit}] {terminal.text}" for terminal in used),
        "function M.score(f)",
        f"  local s = {_lua(policy.tree)}",
        "  if s ~= s then return -LARGEST end",
        "  if s > LARGEST then return LARGEST end",
        "  if s < -LARGEST then return -LARGEST end",
        "  return s",
        "end",
        "return M",
    ]
    return "".join(f"{line}\n" for line in lines)


def _lua(node: Node) -> str:
    """One Lua expression, with parentheses around everything that is not a name or a call."""
    if isinstance(node, Name):
        # Adding 0.0 makes a whole number of Lua 5.3 a float.
        return f"(f.{node.name} + 0.0)"
    if isinstance(node, Constant):
        return f"({float(node.value)!r})"
    parts = [_lua(argument) for argument in node.arguments]
    if node.operator in _SIGNS:
        return f"({parts[0]} {_SIGNS[node.operator]} {parts[1]})"
    if node.operator == "neg":
        return f"(-{parts[0]})"
    return f"{node.operator}({', '.join(parts)})"
