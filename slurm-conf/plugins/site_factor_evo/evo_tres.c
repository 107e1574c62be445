/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Counts in Slurm's TRES and GRES texts; slurm_evo/slurm/tres.py reads the same in Python. */
#include "evo_context.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* "8" or "2K"; -1 if it is no count. */
static double _whole(const char *text, size_t size)
{
	const char *const units = "KMGTP";
	double value = 0;
	size_t i = 0;

	while (i < size && i < 15 && isdigit((unsigned char) text[i]))
		value = value * 10 + (text[i++] - '0');
	if (!i)
		return -1;
	if (i + 1 == size) {
		const char *unit = strchr(units, toupper((unsigned char) text[i]));

		if (!unit || !*unit)
			return -1;
		for (const char *u = units; u <= unit; u++)
			value *= 1024;
		i++;
	}
	return i == size ? value : -1;
}

double evo_tres_count(const char *tres, const char *name)
{
	const size_t length = strlen(name);

	while (tres && *tres) {
		const size_t size = strcspn(tres, ",");

		if (size > length && !memcmp(tres, name, length) && tres[length] == '=')
			return _whole(tres + length + 1, size - length - 1);
		tres += size + (tres[size] == ',');
	}
	return -1;
}

double evo_tres_gpus(const char *tres)
{
	const char *const typed = "gres/gpu:";
	double total = evo_tres_count(tres, "gres/gpu"), sum = -1;

	while (tres && *tres) {
		const size_t size = strcspn(tres, ",");

		if (size > strlen(typed) && !memcmp(tres, typed, strlen(typed))) {
			const char *equals = memchr(tres, '=', size);
			const double count = equals ? _whole(equals + 1, size - (size_t) (equals + 1 - tres)) : -1;

			if (count >= 0)
				sum = (sum < 0 ? 0 : sum) + count;
		}
		tres += size + (tres[size] == ',');
	}
	/* The typed entries repeat what the total says, and are never added to it. */
	return total > sum ? total : sum;
}

double evo_gres_gpus(const char *request)
{
	double total = -1;

	while (request && *request) {
		const size_t size = strcspn(request, ",");
		const char *end = request + size, *at = request, *last;
		double count;

		if (size > 5 && (!memcmp(at, "gres/", 5) || !memcmp(at, "gres:", 5)))
			at += 5;
		if (end - at >= 3 && !memcmp(at, "gpu", 3) && (at + 3 == end || at[3] == ':' || at[3] == '=')) {
			/* the last part is the count, if it is a number; "gpu" and "gpu:a100" are one device */
			for (last = end; last > at && last[-1] != ':' && last[-1] != '='; last--)
				;
			count = last > at ? _whole(last, (size_t) (end - last)) : 1;
			total = (total < 0 ? 0 : total) + (count < 0 ? 1 : count);
		}
		request = end + (*end == ',');
	}
	return total;
}
