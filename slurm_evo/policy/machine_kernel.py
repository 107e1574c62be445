"""The compiled part of `machine`: importing this imports numba, so it is done on the first score only."""

from __future__ import annotations

import numpy as np

from slurm_evo.kernels import kernel
from slurm_evo.policy.expression import PROTECTED

BLOCK = 512
"""Jobs at a time: a row of scratch then stays in the nearest cache."""
LARGEST = float(np.finfo(np.float64).max)


@kernel(error_model="numpy")
def evaluate(code, constants, registers, table, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` (n,) from ``table`` (11, n); one loop for each operator is what vectorises."""
    features, count = table.shape
    fixed = constants.size
    rows = np.empty((fixed + registers, BLOCK))
    for k in range(fixed):
        rows[k, :] = constants[k]
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
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
                    z[i] = x[i] / y[i] if abs(y[i]) > PROTECTED else 1.0
            elif op == 5:
                for i in range(size):
                    z[i] = y[i] if y[i] > x[i] or x[i] != x[i] else x[i]
            elif op == 6:
                for i in range(size):
                    z[i] = y[i] if y[i] < x[i] or x[i] != x[i] else x[i]
            elif op == 7:
                for i in range(size):
                    z[i] = np.sqrt(abs(x[i]))
            elif op == 8:
                for i in range(size):
                    z[i] = np.log(abs(x[i])) if abs(x[i]) > PROTECTED else 0.0
            elif op == 9:
                for i in range(size):
                    z[i] = abs(x[i])
            elif op == 10:
                for i in range(size):
                    z[i] = -x[i]
            else:
                for i in range(size):
                    z[i] = 1.0 / x[i] if abs(x[i]) > PROTECTED else 0.0
        last = rows[fixed + code[code.shape[0] - 1, 3], :size]
        for i in range(size):
            value = last[i]
            if value != value:  # noqa: PLR0124 - this is how NaN is told
                value = -LARGEST
            out[start + i] = min(max(value, -LARGEST), LARGEST)
