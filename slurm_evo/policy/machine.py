"""Scores for many jobs at once: three-address code over rows of features, compiled once for all programs.

Leaves are operands, never copied; each instruction runs over a block of jobs, so that its loop vectorises.
`plain.score` is the slow, obvious twin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slurm_evo.policy.expression import Call, Constant, Name, Node
from slurm_evo.policy.terminals import ROW, TERMINALS

FloatArray = NDArray[np.float64]
OPCODES = {
    name: code
    for code, name in enumerate(
        ("copy", "add", "sub", "mul", "div", "max", "min", "sqrt", "log", "abs", "neg", "inv")
    )
}


class Program(NamedTuple):
    """A compiled expression.

    Operand k is feature row k for k < 11, then a constant, then a register.
    """

    code: NDArray[np.int64]
    """(m, 4): opcode, left operand, right operand, register written (counted from 0)."""
    constants: FloatArray
    """(k,)."""
    registers: int


def compile_tree(tree: Node) -> Program:
    """Three-address code; equal constants share an operand, registers are used again when free."""
    constants: list[float] = []
    code: list[tuple[int, int, int, int]] = []
    free: list[int] = []
    used = 0
    features = len(TERMINALS)
    for node in _constants(tree):
        if node not in constants:
            constants.append(node)
    first_register = features + len(constants)

    def operand(node: Node) -> int:
        nonlocal used
        if isinstance(node, Name):
            return ROW[node.name]
        if isinstance(node, Constant):
            return features + constants.index(node.value)
        operands = [operand(argument) for argument in node.arguments]
        free.extend(place - first_register for place in set(operands) if place >= first_register)
        if free:
            register = free.pop()
        else:
            register, used = used, used + 1
        code.append((OPCODES[node.operator], operands[0], operands[-1], register))
        return first_register + register

    last = operand(tree)
    if not isinstance(tree, Call):
        code.append((OPCODES["copy"], last, last, 0))
        used = 1
    return Program(np.array(code, np.int64), np.array(constants, np.float64), max(used, 1))


def _constants(tree: Node) -> list[float]:
    if isinstance(tree, Constant):
        return [tree.value]
    return (
        [value for argument in tree.arguments for value in _constants(argument)] if isinstance(tree, Call) else []
    )


def scores(program: Program, table: FloatArray) -> FloatArray:
    """Evaluate a program.

    Args:
        program: from `compile_tree`.
        table: (11, n) float64, rows in the order of `TERMINALS`.

    Returns:
        (n,) float64, finite: an overflow becomes the largest number of its sign, a NaN the smallest.
    """
    out = np.empty(table.shape[1], np.float64)
    evaluator()(program.code, program.constants, program.registers, np.ascontiguousarray(table), out)
    return out


def evaluator() -> Any:
    """The compiled evaluator, for other compiled code: ``f(code, constants, registers, table, out)``."""
    from slurm_evo.policy.machine_kernel import evaluate

    return evaluate
