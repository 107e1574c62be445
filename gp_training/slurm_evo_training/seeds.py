"""Where an evolution starts: what people wrote, and random draws of a family that is known to do well."""

from __future__ import annotations

import numpy as np

from slurm_evo.policy import Policy
from slurm_evo.sim.baselines import AS_TEXT


def by_hand(fleet_gpus: int) -> tuple[tuple[str, Policy], ...]:
    """The baselines that are expressions, by name."""
    texts = {name: text.format(fleet_gpus=max(fleet_gpus, 1)) for name, text in AS_TEXT.items()}
    return tuple((name, Policy.parse(text)) for name, text in texts.items())


def drawn(random: np.random.RandomState) -> Policy:
    """One of the family weight^a (wait + b)^c runtime^-d limit^-e max(gpus, 1)^-f exp(h wait), as its logarithm.

    A logarithm puts jobs in the same order, and needs no power that an expression has not. All exponents are
    drawn so that long waits help, long and large jobs wait.
    """
    a, c, f = random.uniform(0.3, 1.5), random.uniform(0.2, 1.5), random.uniform(0.0, 1.2)
    known = random.uniform(0.2, 1.2)
    from_limit = random.uniform(0.0, 0.6) if random.uniform() < 0.6 else 0.0
    d, e = known * (1 - from_limit), known * from_limit
    b = 10 ** random.uniform(1.0, 5.0)
    terms = [
        f"{a:.3g} * log(weight)",
        f"{c:.3g} * log(wait + {b:.3g})",
        f"-{d:.3g} * log(runtime)",
    ]
    if e > 0:
        terms.append(f"-{e:.3g} * log(limit)")
    if f > 0.1:
        terms.append(f"-{f:.3g} * log(max(gpus, 1))")
    if random.uniform() < 0.7:
        terms.append(f"{10 ** random.uniform(-7.0, -4.5):.3g} * wait")
    return Policy.parse(" + ".join(terms).replace("+ -", "- "))
