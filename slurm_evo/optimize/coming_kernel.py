"""The compiled part of `futures.masks_of_coming`; import it late, since it brings numba with it."""

from __future__ import annotations

import numpy as np

from slurm_evo.kernels import kernel


@kernel()
def shut_clusters(masks, kind_of, sizes, clusters, most):  # type: ignore[no-untyped-def]
    """(p, k) uint64: bits of clusters from which more than ``most`` of a kind of pending jobs is kept."""
    shut = np.zeros((masks.shape[0], sizes.size), np.uint64)
    kept = np.empty((sizes.size, clusters), np.int64)
    for p in range(masks.shape[0]):
        kept[:] = 0
        for j in range(kind_of.size):
            if kind_of[j] >= 0:
                for c in range(clusters):
                    kept[kind_of[j], c] += (masks[p, j] >> np.uint64(c)) & np.uint64(1) == 0
        for k in range(sizes.size):
            for c in range(clusters):
                if kept[k, c] > most * sizes[k]:
                    shut[p, k] |= np.uint64(1) << np.uint64(c)
    return shut
