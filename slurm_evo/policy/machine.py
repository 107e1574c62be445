"""Scores for many jobs at once: three-address code over rows of features, compiled once for all programs.

Leaves are operands, never copied; each instruction runs over a block of jobs, so that its loop vectorises.
`plain.score` is the slow, obvious twin.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slurm_evo.policy.expression import PROTECTED, Call, Constant, Name, Node
from slurm_evo.policy.terminals import ROW, TERMINALS

FloatArray = NDArray[np.float64]
OPCODES = {
    name: code
    for code, name in enumerate(
        ("copy", "add", "sub", "mul", "div", "max", "min", "sqrt", "log", "abs", "neg", "inv")
    )
}
BLOCK = 512
LARGEST = float(np.finfo(np.float64).max)


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


@cache
def evaluator() -> Any:
    """The compiled evaluator, for use inside other compiled code: ``f(code, constants, registers, table, out)``.

    numba is imported only when the first score is asked for.
    """
    from numba import njit

    protected, largest, block = PROTECTED, LARGEST, BLOCK

    @njit(cache=True, nogil=True, error_model="numpy")
    def evaluate(code, constants, registers, table, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0912 - one loop per operator is what vectorises
        features, count = table.shape
        fixed = constants.size
        rows = np.empty((fixed + registers, block))
        for k in range(fixed):
            rows[k, :] = constants[k]
        for start in range(0, count, block):
            size = min(block, count - start)
            for line in range(code.shape[0]):
                a, b = code[line, 1], code[line, 2]
                x = table[a, start : start + size] if a < features else rows[a - features, :size]
                y = table[b, start : start + size] if b < features else rows[b - features, :size]
                z = rows[fixed + code[line, 3], :size]
                op = code[line, 0]
                if op == 0:
                    for i in range(size):
                        z[i] = x[i]
                elif op == 1:
                    for i in range(size):
                        z[i] = x[i] + y[i]
                elif op == 2:
                    for i in range(size):
                        z[i] = x[i] - y[i]
                elif op == 3:
                    for i in range(size):
                        z[i] = x[i] * y[i]
                elif op == 4:
                    for i in range(size):
                        z[i] = x[i] / y[i] if abs(y[i]) > protected else 1.0
                elif op == 5:
                    for i in range(size):
                        z[i] = max(x[i], y[i])
                elif op == 6:
                    for i in range(size):
                        z[i] = min(x[i], y[i])
                elif op == 7:
                    for i in range(size):
                        z[i] = np.sqrt(abs(x[i]))
                elif op == 8:
                    for i in range(size):
                        z[i] = np.log(abs(x[i])) if abs(x[i]) > protected else 0.0
                elif op == 9:
                    for i in range(size):
                        z[i] = abs(x[i])
                elif op == 10:
                    for i in range(size):
                        z[i] = -x[i]
                else:
                    for i in range(size):
                        z[i] = 1.0 / x[i] if abs(x[i]) > protected else 0.0
            last = rows[fixed + code[code.shape[0] - 1, 3], :size]
            for i in range(size):
                value = last[i]
                if value != value:  # noqa: PLR0124 - this is how NaN is told
                    value = -largest
                out[start + i] = min(max(value, -largest), largest)

    return evaluate
