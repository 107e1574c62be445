"""Scores of waiting jobs as ordered integers: larger runs first, ties to the job submitted first. Compiled."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from slurm_evo.policy import HALF_LIFE_S, ROW
from slurm_evo.policy.machine import evaluator
from slurm_evo.sim.placing import allocating, compiled
from slurm_evo.sim.world import (
    ASKED_GPUS,
    BUSY_GPUS,
    FLEET_GPUS,
    GONE,
    NOW,
    Q_JOB,
    Q_USER,
    SUBMIT,
    U_AT,
    U_RUNNING,
    U_USED,
)

evaluate = evaluator()
# Compiled beforehand: called first from code without reference counts, it would be compiled without them too.
evaluate.compile("void(int64[:,::1], float64[::1], int64, float64[:,::1], float64[::1])")
DECAY = math.log(2.0) / HALF_LIFE_S
LAST = 2**31 - 1
WAIT, USAGE, ASKED = ROW["wait"], ROW["user_usage"], ROW["user_pending"]
LOAD, PRESSURE = ROW["load"], ROW["pressure"]
FIRST_STATIC, STATIC = ROW["limit"], 6
"""Rows of terminals that never change for a job."""


class Program(NamedTuple):
    """A policy as the engine runs it."""

    code: npt.NDArray[np.int64]
    constants: npt.NDArray[np.float64]
    registers: int
    uses: npt.NDArray[np.bool_]
    """(11,) terminals it speaks of."""


@compiled
def key_of(score, job):  # type: ignore[no-untyped-def]
    """One integer that orders by score, rounded to float32, then by job; no number ranks last."""
    bits = np.int32(-(2**31))
    if score == score:  # noqa: PLR0124  # the plain test for not-a-number
        raw = np.float32(score + np.float32(0.0)).view(np.int32)
        bits = raw ^ ((raw >> np.int32(31)) & np.int32(0x7FFFFFFF))
    return (np.int64(bits) << 32) | np.int64(LAST - job)


@compiled
def job_of(key):  # type: ignore[no-untyped-def]
    """The job a key names."""
    return LAST - (key & np.int64(0xFFFFFFFF))


@compiled
def best_key(work, count):  # type: ignore[no-untyped-def]
    """The largest of the first ``count`` keys. An integer maximum is vectorised, a float one is not."""
    best = GONE
    for x in range(np.uint64(count)):
        best = max(best, work[x])
    return best


@compiled
def used_gpu_seconds(user_usage, user, now):  # type: ignore[no-untyped-def]
    """GPU-seconds of a user, decayed with HALF_LIFE_S, running jobs included."""
    fade = math.exp(-DECAY * (now - user_usage[user, U_AT]))
    return user_usage[user, U_USED] * fade + user_usage[user, U_RUNNING] * (1.0 - fade) / DECAY


@compiled
def change_running(user_usage, user, now, gpus):  # type: ignore[no-untyped-def]
    """A user starts (or, with a negative count, stops) to use GPUs."""
    user_usage[user, U_USED] = used_gpu_seconds(user_usage, user, now)
    user_usage[user, U_AT] = now
    user_usage[user, U_RUNNING] += gpus


@allocating
def score_slots(w, q, low, high, program):  # type: ignore[no-untyped-def]
    """Compute terminals, scores and keys of slots [low, high) of a queue, as of this instant."""
    now = w.clock[NOW]
    count = high - low
    uses = program.uses
    table = w.scratch[: 11 * count].reshape((11, count))
    column_job = w.column[q, Q_JOB, low:high]
    column_user = w.column[q, Q_USER, low:high]
    if uses[WAIT]:
        for x in range(count):
            table[WAIT, x] = now - w.job[column_job[x], SUBMIT]
    for f in range(STATIC):
        if uses[FIRST_STATIC + f]:
            for x in range(count):
                table[FIRST_STATIC + f, x] = w.table[q, f, low + x]
    if uses[USAGE]:
        for x in range(count):
            table[USAGE, x] = used_gpu_seconds(w.user_usage, column_user[x], now)
    if uses[ASKED]:
        for x in range(count):
            table[ASKED, x] = w.user_asked[column_user[x]]
    if uses[LOAD]:
        table[LOAD, :] = w.clock[BUSY_GPUS] / w.clock[FLEET_GPUS]
    if uses[PRESSURE]:
        table[PRESSURE, :] = w.clock[ASKED_GPUS] / w.clock[FLEET_GPUS]
    evaluate(program.code, program.constants, program.registers, table, w.value[:count])
    for x in range(count):
        w.key[q, low + x] = key_of(np.float32(w.value[x]), column_job[x])
