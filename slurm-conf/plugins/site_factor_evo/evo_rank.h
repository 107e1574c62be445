/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From scores to SiteFactors: places in a band, and the place of a newcomer. No Slurm headers here. */
#ifndef EVO_RANK_H
#define EVO_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
	double score;
	double submitted; /* of two equal scores the one that waits longer runs first, */
	uint64_t id; /* then the one with the smaller id */
	int64_t factor; /* what evo_rank found, 1 to the band */
	void *job; /* for the caller */
} evo_ranked_t;

/* The scores of a ranking, lowest first, with their factors. */
typedef struct {
	double *scores;
	int64_t *factors;
	size_t count;
	int64_t band;
} evo_scale_t;

/* Sort so that the lowest runs last, and spread the jobs evenly over 1..band. O(n log n). */
void evo_rank(evo_ranked_t *jobs, size_t count, int64_t band);

/* Keep a ranking for newcomers; false, and the old scale stays, if there is no memory. */
bool evo_scale_set(evo_scale_t *scale, const evo_ranked_t *jobs, size_t count, int64_t band);

/* The factor for a score: between those of its neighbours, in order also among newcomers as far as numbers go. */
int64_t evo_scale_find(const evo_scale_t *scale, double score, int64_t band);

void evo_scale_free(evo_scale_t *scale);

#endif
