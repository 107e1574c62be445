"""The compiled part of `search.mated`; import it late, since it brings numba with it."""

from __future__ import annotations

import numpy as np

from slurm_evo.kernels import kernel


@kernel(inline="always")
def drawn(state):  # type: ignore[no-untyped-def]
    """The next 64 random bits (splitmix64; Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel(inline="always")
def below(state, count):  # type: ignore[no-untyped-def]
    """A whole number from 0 to below ``count``, out of 32 bits."""
    return np.int64(((drawn(state) >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32))


@kernel()
def mate(genomes, fathers, mothers, urgent, counts, most, leaps, shares, seeds, children):  # type: ignore[no-untyped-def]
    """See `search.mated`; writes ``children``."""
    genes = genomes.shape[1]
    state = np.zeros(1, np.uint64)
    for row in range(children.shape[0]):
        state[0] = seeds[row]
        father, mother, child = genomes[fathers[row]], genomes[mothers[row]], children[row]
        if drawn(state) & np.uint64(1):
            for begin in range(0, genes, 64):
                bits = drawn(state)
                for gene in range(begin, min(begin + 64, genes)):
                    child[gene] = mother[gene] if bits & np.uint64(1) else father[gene]
                    bits >>= np.uint64(1)
        else:
            one, other = below(state, genes + 1), below(state, genes + 1)
            child[:] = father
            child[min(one, other) : max(one, other)] = mother[min(one, other) : max(one, other)]
        for _ in range(1 + below(state, most)):
            chance = np.float64(drawn(state) >> np.uint64(11)) / 9007199254740992.0
            gene = min(np.searchsorted(urgent, chance), genes - 1)
            child[gene] = below(state, counts[gene])
        if below(state, 1000) < 1000 * leaps:
            share = np.int64(65536 * shares[below(state, shares.size)])
            for gene in range(genes):
                if below(state, 65536) < share:
                    child[gene] = below(state, counts[gene])
