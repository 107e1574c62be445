"""Synthetic GPU workloads for benchmarks: heavy-tailed running times, bursts, day and night."""

import numpy as np

from slurm_evo.sim.workload import Workload

SIZES = [1, 2, 4, 8, 16, 32, 64]
SHARES = [0.50, 0.12, 0.13, 0.16, 0.05, 0.03, 0.01]


def synthetic(n: int, gpus: int, load: float, seed: int, *, homes: bool = False) -> Workload:
    """``n`` jobs that keep ``gpus`` devices busy to the fraction ``load``; from four homes or one."""
    rng = np.random.default_rng(seed)
    size = rng.choice(SIZES, size=n, p=SHARES)
    runtime = np.clip(rng.lognormal(np.log(600), 1.7, n), 10, 2 * 86_400).round().astype(np.int64)
    slack = rng.choice([1.0, 1.2, 2.0, 4.0, 10.0], size=n, p=[0.1, 0.25, 0.3, 0.2, 0.15])
    limit = np.maximum(np.minimum(np.ceil(runtime * slack / 60) * 60, 3 * 86_400), runtime).astype(np.int64)
    span = float((size * runtime).sum()) / (gpus * load)
    bursts = np.cumsum(np.where(rng.random(n) < 1 / 8, rng.exponential(8.0, n), 0.0))
    even = (bursts - bursts[0]) / max(bursts[-1] - bursts[0], 1e-9) * span
    grid = np.linspace(0, span, 50_000)
    rate = np.concatenate([[0], np.cumsum(1 + 0.8 * np.sin(2 * np.pi * grid[1:] / 86_400))])
    submit = np.interp(even, rate / rate[-1] * span, grid).astype(np.int64)
    return Workload(
        submit=np.sort(submit),
        runtime=runtime,
        limit=limit,
        estimate=np.maximum((runtime * rng.lognormal(0, 0.8, n)).astype(np.int64), 1),
        gpus=size,
        home=rng.integers(0, 4, n) if homes else np.zeros(n),
        user=rng.integers(0, 200, n),
        weight=rng.choice([1.0, 2.0, 4.0], size=n, p=[0.6, 0.3, 0.1]),
    )
