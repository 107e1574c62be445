"""Scores of waiting jobs as ordered integers: larger runs first, ties to the job submitted first. Compiled."""

from __future__ import annotations

import math

import numpy as np

from slurm_evo.sim.placing import compiled
from slurm_evo.sim.rows import evaluate
from slurm_evo.sim.world import (
    ASKED_GPUS,
    BUSY_GPUS,
    FLEET_GPUS,
    GONE,
    NOW,
    SUBMIT,
    U_AT,
    U_RUNNING,
    U_USED,
)

HALF_LIFE_S = 7 * 86_400.0
"""Slurm's default PriorityDecayHalfLife."""
DECAY = math.log(2.0) / HALF_LIFE_S
LAST = 2**31 - 1
WAIT, USAGE, ASKED, LOAD, PRESSURE = 0, 7, 8, 9, 10


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


@compiled
def score_slots(job, column_job, column_user, table, key, value, user_usage, user_asked, clock, program, low, high):  # type: ignore[no-untyped-def]  # noqa: E501
    """Compute the terminals that depend on time, the scores, and the keys, of slots [low, high) of a queue."""
    now = clock[NOW]
    load = clock[BUSY_GPUS] / clock[FLEET_GPUS]
    pressure = clock[ASKED_GPUS] / clock[FLEET_GPUS]
    uses = program.uses
    for x in range(low, high):
        table[WAIT, x] = now - job[column_job[x], SUBMIT]
    if uses[USAGE]:
        for x in range(low, high):
            table[USAGE, x] = used_gpu_seconds(user_usage, column_user[x], now)
    if uses[ASKED]:
        for x in range(low, high):
            table[ASKED, x] = user_asked[column_user[x]]
    if uses[LOAD]:
        for x in range(low, high):
            table[LOAD, x] = load
    if uses[PRESSURE]:
        for x in range(low, high):
            table[PRESSURE, x] = pressure
    evaluate(program, table, low, high, value)
    for x in range(low, high):
        key[x] = key_of(np.float32(value[x]), column_job[x])
