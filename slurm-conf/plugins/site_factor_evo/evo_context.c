/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "evo_context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_POINTS 2000000000.0
#define MOST_NAMED 400000 /* entries of each kind: a bound on memory that no site reaches */

/* The words that introduce a section, as in the file. */
static const char *const sections[EVO_SECTIONS] = {
	"weight qos", "weight partition", "weight account",
	"runtime user", "runtime account", "runtime partition",
	"user",
	"only partition", "only qos", "only account", "only user",
	"never partition", "never qos", "never account", "never user",
};

void evo_context_default(evo_context_t *context)
{
	memset(context, 0, sizeof(*context));
	context->default_weight = 1.0;
	context->band = 1000000;
	context->recalc_s = 60;
	context->words[context->word_count++] = "slurm-evo:stay";
}

void evo_context_free(evo_context_t *context)
{
	free(context->named);
	free(context->known);
	free(context->text);
	memset(context, 0, sizeof(*context));
}

/* Room for one more of "size" bytes. */
static bool _grow(void **items, size_t count, size_t *room, size_t size, evo_error_t *error)
{
	size_t wanted = *room ? *room * 2 : 64;
	void *more;

	if (count < *room)
		return true;
	if (count >= MOST_NAMED)
		return evo_refuse(error, "is one of more than %d", MOST_NAMED);
	if (!(more = realloc(*items, wanted * size)))
		return evo_refuse(error, "found no memory");
	*items = more;
	*room = wanted;
	return true;
}

/* Spaces and percent signs in names are written as %20 and %25. */
static bool _decode(char *name)
{
	char *to = name;

	for (const char *from = name; *from; from++, to++) {
		char digits[3] = { 0 };

		if (*from != '%') {
			*to = *from;
			continue;
		}
		if (!from[1] || !from[2])
			return false;
		memcpy(digits, from + 1, 2);
		if (strspn(digits, "0123456789ABCDEF") != 2)
			return false;
		*to = (char) strtoul(digits, NULL, 16);
		if (!*to)
			return false;
		from += 2;
	}
	*to = '\0';
	return true;
}

static int _by_name(const void *left, const void *right)
{
	const evo_named_t *a = left, *b = right;

	if (a->section != b->section)
		return a->section < b->section ? -1 : 1;
	return strcmp(a->name, b->name);
}

static int _by_id(const void *left, const void *right)
{
	const evo_known_t *a = left, *b = right;

	return (a->id > b->id) - (a->id < b->id);
}

static const evo_named_t *_find(const evo_context_t *context, unsigned section, const char *name)
{
	const evo_named_t wanted = { .name = name, .section = section };

	if (!name || !context->named_count)
		return NULL;
	return bsearch(&wanted, context->named, context->named_count, sizeof(wanted), _by_name);
}

const evo_known_t *evo_known(const evo_context_t *context, uint64_t id)
{
	const evo_known_t wanted = { .id = id };

	if (!context->known_count)
		return NULL;
	return bsearch(&wanted, context->known, context->known_count, sizeof(wanted), _by_id);
}

static bool _named(evo_context_t *context, unsigned section, char *rest, evo_error_t *error)
{
	evo_named_t entry = { .section = section };
	char *name = evo_word(&rest);

	if (!name || !_decode(name) || strlen(name) >= EVO_NAME)
		return evo_refuse(error, "has no readable name");
	entry.name = name;
	if (section <= EVO_RUNTIME_PARTITION || section == EVO_USER)
		if (!evo_number(evo_word(&rest), &entry.first) || entry.first < 0)
			return evo_refuse(error, "has no readable number that is 0 or more");
	if (section == EVO_USER && (!evo_number(evo_word(&rest), &entry.second) || entry.second < 0))
		return evo_refuse(error, "has no readable second number that is 0 or more");
	if (rest)
		return evo_refuse(error, "goes on where it should end");
	if (section >= EVO_ONLY_PARTITION && section <= EVO_ONLY_USER)
		context->only[section] = true;
	if (!_grow((void **) &context->named, context->named_count, &context->named_room, sizeof(entry), error))
		return false;
	context->named[context->named_count++] = entry;
	return true;
}

static bool _job(evo_context_t *context, char *rest, evo_error_t *error)
{
	evo_known_t entry;
	double points;

	if (!evo_count(evo_word(&rest), UINT32_MAX, &entry.id) ||
	    !evo_number(evo_word(&rest), &entry.submitted) || entry.submitted < 0 ||
	    !evo_number(evo_word(&rest), &entry.runtime) || entry.runtime < 0 ||
	    !evo_number(evo_word(&rest), &points) || fabs(points) > MOST_POINTS || rest)
		return evo_refuse(error, "is no job: its id, when it was submitted, its running time, its points");
	entry.points = (int64_t) points;
	if (!_grow((void **) &context->known, context->known_count, &context->known_room, sizeof(entry), error))
		return false;
	context->known[context->known_count++] = entry;
	return true;
}

static bool _single(evo_context_t *context, const char *key, char *rest, evo_error_t *error)
{
	const struct {
		const char *key;
		double *to, least, most;
	} numbers[] = {
		{ "time", &context->written, 0, 1e12 },
		{ "load", &context->load, 0, 1 },
		{ "pressure", &context->pressure, 0, 1e12 },
		{ "weight", &context->default_weight, 0, 1e12 },
	};
	uint64_t whole;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		if (strcmp(key, numbers[i].key))
			continue;
		if (!evo_number(rest, numbers[i].to) || *numbers[i].to < numbers[i].least ||
		    *numbers[i].to > numbers[i].most)
			return evo_refuse(error, "has a number for %s that is not between %g and %g", key,
					  numbers[i].least, numbers[i].most);
		return true;
	}
	if (!strcmp(key, "band")) {
		if (!evo_count(rest, 2000000000, &whole) || !whole)
			return evo_refuse(error, "has no band between 1 and 2000000000");
		context->band = (int64_t) whole;
		return true;
	}
	if (!strcmp(key, "recalc")) {
		if (!evo_count(rest, 86400 * 365, &whole))
			return evo_refuse(error, "has no readable number of seconds");
		context->recalc_s = (int64_t) whole;
		return true;
	}
	if (!strcmp(key, "stay")) {
		if (!rest || !*rest || !_decode(rest) || context->word_count == EVO_WORDS)
			return evo_refuse(error, "has no opt-out word, or is one of more than %d", EVO_WORDS);
		context->words[context->word_count++] = rest;
		return true;
	}
	/* For people and for Lua. */
	if (!strcmp(key, "cluster") || !strcmp(key, "policy") || !strcmp(key, "scale") || !strcmp(key, "start"))
		return true;
	return evo_refuse(error, "has an unknown key \"%.20s\"", key);
}

static bool _line(evo_context_t *context, char *line, evo_error_t *error)
{
	char *rest = line;
	const char *key;

	for (unsigned section = 0; section < EVO_SECTIONS; section++) {
		const size_t length = strlen(sections[section]);

		if (!strncmp(line, sections[section], length) && line[length] == ' ')
			return _named(context, section, line + length + 1, error);
	}
	key = evo_word(&rest);
	if (!key)
		return evo_refuse(error, "is empty");
	return strcmp(key, "job") ? _single(context, key, rest, error) : _job(context, rest, error);
}

bool evo_context_parse(evo_context_t *context, char *text, size_t size, evo_error_t *error)
{
	evo_lines_t lines;
	evo_error_t why;
	char *line;

	evo_context_default(context);
	context->word_count = 0; /* the file says which */
	context->text = text;
	if (!evo_open_lines(&lines, text, size, EVO_CONTEXT_FIRST, error))
		goto refused;
	while ((line = evo_next_line(&lines)))
		if (!_line(context, line, &why)) {
			evo_refuse(error, "line %u %s", lines.number, why.text);
			goto refused;
		}
	if (context->named_count)
		qsort(context->named, context->named_count, sizeof(*context->named), _by_name);
	if (context->known_count)
		qsort(context->known, context->known_count, sizeof(*context->known), _by_id);
	return true;

refused:
	evo_context_free(context);
	return false;
}

/* One of the words of "text" that spaces separate is "word". */
static bool _has_word(const char *text, const char *word)
{
	const char *const spaces = " \t\n\v\f\r";
	const size_t length = strlen(word);

	while (text && *text) {
		size_t size;

		text += strspn(text, spaces);
		size = strcspn(text, spaces);
		if (size == length && !memcmp(text, word, size))
			return true;
		text += size;
	}
	return false;
}

static bool _not_allowed(const evo_context_t *context, unsigned topic, const char *name)
{
	const unsigned only = EVO_ONLY_PARTITION + topic, never = EVO_NEVER_PARTITION + topic;

	return (context->only[only] && !_find(context, only, name)) || _find(context, never, name);
}

/* Call with each name of "gpu,debug"; the number of names that are not allowed. */
static bool _partition_excluded(const evo_context_t *context, const char *partitions)
{
	char name[EVO_NAME];

	while (partitions && *partitions) {
		const size_t size = strcspn(partitions, ",");

		if (size >= sizeof(name))
			return true; /* what cannot be checked is not touched */
		memcpy(name, partitions, size);
		name[size] = '\0';
		if (size && _not_allowed(context, 0, name))
			return true;
		partitions += size + (partitions[size] == ',');
	}
	return false;
}

bool evo_excluded(const evo_context_t *context, const evo_job_t *job)
{
	for (unsigned i = 0; i < context->word_count; i++)
		if (_has_word(job->comment, context->words[i]) || _has_word(job->extra, context->words[i]) ||
		    _has_word(job->admin_comment, context->words[i]))
			return true;
	return _not_allowed(context, 1, job->qos) || _not_allowed(context, 2, job->account) ||
	       _not_allowed(context, 3, job->user) || _partition_excluded(context, job->partitions);
}

double evo_submitted(const evo_context_t *context, const evo_job_t *job)
{
	const evo_known_t *known = evo_known(context, job->id);

	return known && known->submitted > 0 && known->submitted < job->submitted ? known->submitted : job->submitted;
}

static double _factor(const evo_context_t *context, unsigned section, const char *name)
{
	const evo_named_t *found = _find(context, section, name);

	return found ? found->first : 1.0;
}

/* Predicted running time: of the job itself, else a share of its limit by user, account or partition. */
static double _runtime(const evo_context_t *context, const evo_job_t *job, const char *partition)
{
	const evo_known_t *known = evo_known(context, job->id);
	const evo_named_t *found;

	if (known && known->runtime > 0)
		return known->runtime;
	if (!(found = _find(context, EVO_RUNTIME_USER, job->user)) &&
	    !(found = _find(context, EVO_RUNTIME_ACCOUNT, job->account)))
		found = _find(context, EVO_RUNTIME_PARTITION, partition);
	return fmax(job->limit_s * (found ? found->first : 1.0), 1.0);
}

void evo_features(const evo_context_t *context, const evo_job_t *job, double now, double *table, size_t stride)
{
	const evo_named_t *user = _find(context, EVO_USER, job->user);
	char partition[EVO_NAME] = "";
	size_t size = job->partitions ? strcspn(job->partitions, ",") : 0;

	if (size && size < sizeof(partition))
		memcpy(partition, job->partitions, size);
	/* Waits are taken on a grid, so that the order changes for a reason and not with every look. */
	if (context->recalc_s > 0)
		now -= fmod(now, (double) context->recalc_s);
	table[EVO_WAIT * stride] = fmax(now - fmax(evo_submitted(context, job), job->eligible), 0.0);
	table[EVO_LIMIT * stride] = job->limit_s;
	table[EVO_RUNTIME * stride] = _runtime(context, job, partition);
	table[EVO_GPUS * stride] = job->gpus;
	table[EVO_NODES * stride] = job->nodes;
	table[EVO_CPUS * stride] = job->cpus;
	table[EVO_WEIGHT * stride] = context->default_weight * _factor(context, EVO_WEIGHT_QOS, job->qos) *
				     _factor(context, EVO_WEIGHT_PARTITION, partition) *
				     _factor(context, EVO_WEIGHT_ACCOUNT, job->account);
	table[EVO_USER_USAGE * stride] = user ? user->first : 0.0;
	/* The daemon may not have seen this job yet. */
	table[EVO_USER_PENDING * stride] = fmax(user ? user->second : 0.0, job->gpus);
	table[EVO_LOAD * stride] = context->load;
	table[EVO_PRESSURE * stride] = context->pressure;
}
