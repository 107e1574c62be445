/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "evo_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int _lowest_first(const void *left, const void *right)
{
	const evo_ranked_t *a = left, *b = right;

	if (a->score != b->score)
		return a->score < b->score ? -1 : 1;
	if (a->submitted != b->submitted)
		return a->submitted > b->submitted ? -1 : 1;
	return (a->id < b->id) - (a->id > b->id);
}

void evo_rank(evo_ranked_t *jobs, size_t count, int64_t band)
{
	qsort(jobs, count, sizeof(*jobs), _lowest_first);
	for (size_t place = 0; place < count; place++) {
		const double share = ((double) place + 0.5) / (double) count;
		const int64_t factor = 1 + (int64_t) (share * (double) band);

		jobs[place].factor = factor > band ? band : factor;
	}
}

bool evo_scale_set(evo_scale_t *scale, const evo_ranked_t *jobs, size_t count, int64_t band)
{
	/* never a request for nothing: what malloc(0) gives differs */
	double *scores = malloc((count + 1) * sizeof(*scores));
	int64_t *factors = malloc((count + 1) * sizeof(*factors));

	if (!scores || !factors) {
		free(scores);
		free(factors);
		return false;
	}
	for (size_t i = 0; i < count; i++) {
		scores[i] = jobs[i].score;
		factors[i] = jobs[i].factor;
	}
	evo_scale_free(scale);
	*scale = (evo_scale_t) { scores, factors, count, band };
	return true;
}

void evo_scale_free(evo_scale_t *scale)
{
	free(scale->scores);
	free(scale->factors);
	memset(scale, 0, sizeof(*scale));
}

/* Strictly between two factors where a whole number is free there. */
static int64_t _between(int64_t low, int64_t high, double share)
{
	const int64_t room = high - low;
	int64_t step;

	if (room < 2)
		return high > low ? high : low;
	if (!(share >= 0))
		share = 0.5;
	step = (int64_t) ((double) room * fmin(share, 1.0));
	return low + (step < 1 ? 1 : step > room - 1 ? room - 1 : step);
}

/* 0 at no distance, towards 1 far away. */
static double _far(double distance, double unit)
{
	return isfinite(distance) ? distance / (distance + fabs(unit) + 1.0) : 1.0;
}

int64_t evo_scale_find(const evo_scale_t *scale, double score, int64_t band)
{
	size_t low = 0, high = scale->count;

	if (!scale->count) {
		/* Nothing to compare with yet: the order of magnitude, around the middle of the band. */
		const double size = log2(1.0 + fabs(score)) / 1025.0;

		return _between(0, band + 1, 0.5 + 0.5 * (score < 0 ? -size : size));
	}
	while (low < high) { /* the first that is above it */
		const size_t middle = low + (high - low) / 2;

		if (scale->scores[middle] > score)
			high = middle;
		else
			low = middle + 1;
	}
	if (low > 0 && scale->scores[low - 1] == score)
		return scale->factors[low - 1];
	if (low == scale->count) {
		const int64_t factor = _between(scale->factors[low - 1], scale->band + 1,
						_far(score - scale->scores[low - 1], scale->scores[low - 1]));

		return factor > scale->band ? scale->band : factor;
	}
	if (low == 0)
		return _between(0, scale->factors[0], 1.0 - _far(scale->scores[0] - score, scale->scores[0]));
	/* halves: the whole distance may be more than a double holds */
	return _between(scale->factors[low - 1], scale->factors[low],
			(score / 2 - scale->scores[low - 1] / 2) / (scale->scores[low] / 2 - scale->scores[low - 1] / 2));
}
