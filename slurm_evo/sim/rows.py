"""Stub row machine until slurm_evo.policy has one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from slurm_evo.sim.placing import compiled

ADD, SUB, MUL, DIV, MAX, MIN, SQRT, LOG, NEG = range(9)
NAMES = ("wait", "limit", "runtime", "gpus", "nodes", "cpus", "weight", "user_usage", "user_pending", "load", "pressure")


class Rows(NamedTuple):
    code: npt.NDArray[np.int64]
    constant: npt.NDArray[np.float64]
    uses: npt.NDArray[np.bool_]


@compiled
def evaluate(program, table, low, high, out):
    stack = np.zeros(64)
    for x in range(low, high):
        n = 0
        for k in range(program.code.shape[0]):
            op = program.code[k, 0]
            if op == 100:
                stack[n] = table[program.code[k, 1], x]
                n += 1
            elif op == 101:
                stack[n] = program.constant[program.code[k, 1]]
                n += 1
            elif op == SQRT:
                stack[n - 1] = np.sqrt(abs(stack[n - 1]))
            elif op == LOG:
                stack[n - 1] = np.log(abs(stack[n - 1])) if abs(stack[n - 1]) > 1e-3 else 0.0
            elif op == NEG:
                stack[n - 1] = -stack[n - 1]
            else:
                a = stack[n - 2]
                b = stack[n - 1]
                n -= 1
                if op == ADD:
                    r = a + b
                elif op == SUB:
                    r = a - b
                elif op == MUL:
                    r = a * b
                elif op == DIV:
                    r = a / b if abs(b) > 1e-3 else 1.0
                elif op == MAX:
                    r = max(a, b)
                else:
                    r = min(a, b)
                stack[n - 1] = r
        out[x] = stack[0]


def postfix(text):
    code, constants = [], []
    uses = np.zeros(11, dtype=np.bool_)
    ops = dict(add=ADD, sub=SUB, mul=MUL, div=DIV, max=MAX, min=MIN, sqrt=SQRT, log=LOG, neg=NEG)
    for word in text.split():
        if word in ops:
            code.append((ops[word], 0))
        elif word in NAMES:
            code.append((100, NAMES.index(word)))
            uses[NAMES.index(word)] = True
        else:
            code.append((101, len(constants)))
            constants.append(float(word))
    return Rows(np.array(code, np.int64), np.array(constants or [0.0]), uses)
