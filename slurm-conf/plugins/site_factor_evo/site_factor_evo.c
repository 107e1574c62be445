/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * site_factor/evo: slurm-evo's policy inside slurmctld (slurm.conf(5), PrioritySiteFactorPlugin).
 *
 * Copyright (C) the slurm-evo developers. This program is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License as published by the Free Software Foundation; either version 2
 * of the License, or (at your option) any later version. See LICENSE.
 *
 * A thread of its own reads the files and never holds a lock of slurmctld; what it read is swapped in under a mutex
 * that is held for microseconds. The pass over all pending jobs runs under slurmctld's job write lock, reads no file
 * and ends within its budget. Without a policy every job keeps what it has.
 *
 * PrioritySiteFactorParameters=dir=/var/lib/slurm-evo/plugin/alpha,budget_ms=50
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

#include "evo_slurm_versions.h"

#include "evo_rank.h"

#define EVO_VERSION "1.0"
#define BUDGET_MS 50
#define POLL_S 1
#define OLD_S 900.0 /* a context that nobody renewed for this long is worth a line in the log */

const char plugin_name[] = "slurm-evo site_factor plugin " EVO_VERSION;
const char plugin_type[] = "site_factor/evo";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

/* One of the two files, and what was last seen of it. Only the loader looks at it. */
typedef struct {
	char path[4096];
	bool seen, missed;
	dev_t device;
	ino_t inode;
	off_t size;
	struct timespec changed;
	char problem[EVO_MESSAGE];
} watched_t;

static watched_t policy_file, context_file;
static bool news; /* something happened to a file since the last status */
static char status_path[4096];

/* Guards all below. Slurmctld's threads take it inside their own locks, the loader only to swap and to copy. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static evo_policy_t *policy; /* NULL until a good one was read */
static evo_context_t context;
static evo_scale_t scale;
static double budget_s = BUDGET_MS / 1000.0;

static struct {
	uint64_t passes, cut;
	size_t jobs; /* ranked by the last pass */
	double seconds, longest;
	time_t at;
} told;

static evo_ranked_t *ranked;
static double *table;
static size_t room;
static size_t resume_at; /* the pending job at which the next pass begins, after one that was cut */

static pthread_t loader;
static bool loading;
static pthread_mutex_t wake_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static bool stopping;

static double _clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

/* A file that differs from what was last seen; says once that it is missing. */
static bool _changed(watched_t *file)
{
	struct stat now;

	if (stat(file->path, &now)) {
		if (!file->missed)
			error("%s: %s: %m; what was last read stays in force", plugin_type, file->path);
		news |= !file->missed;
		file->missed = true;
		file->seen = false;
		snprintf(file->problem, sizeof(file->problem), "is missing");
		return false;
	}
	file->missed = false;
	if (file->seen && now.st_dev == file->device && now.st_ino == file->inode && now.st_size == file->size &&
	    now.st_mtim.tv_sec == file->changed.tv_sec && now.st_mtim.tv_nsec == file->changed.tv_nsec)
		return false;
	file->seen = news = true;
	file->device = now.st_dev;
	file->inode = now.st_ino;
	file->size = now.st_size;
	file->changed = now.st_mtim;
	return true;
}

static void _refused(watched_t *file, const evo_error_t *why)
{
	snprintf(file->problem, sizeof(file->problem), "%s", why->text);
	error("%s: %s: %s; what was last read stays in force", plugin_type, file->path, why->text);
}

static void _load_policy(void)
{
	evo_error_t why = { "" };
	evo_policy_t *fresh = malloc(sizeof(*fresh)), *old;
	size_t size;
	char *text = fresh ? evo_read_file(policy_file.path, EVO_POLICY_BYTES, &size, &why) : NULL;

	if (!text || !evo_policy_parse(fresh, text, size, &why)) {
		_refused(&policy_file, &why);
		free(text);
		free(fresh);
		return;
	}
	free(text);
	policy_file.problem[0] = '\0';
	info("%s: policy %s: %.200s", plugin_type, fresh->id, fresh->text);
	pthread_mutex_lock(&lock);
	old = policy;
	policy = fresh;
	if (!old || strcmp(old->id, fresh->id))
		evo_scale_free(&scale); /* scores of another policy say nothing of this one's */
	pthread_mutex_unlock(&lock);
	free(old);
}

static void _load_context(void)
{
	evo_error_t why = { "" };
	evo_context_t fresh, old;
	size_t size;
	char *text = evo_read_file(context_file.path, EVO_CONTEXT_BYTES, &size, &why);

	if (!text || !evo_context_parse(&fresh, text, size, &why)) {
		_refused(&context_file, &why);
		return;
	}
	context_file.problem[0] = '\0';
	pthread_mutex_lock(&lock);
	old = context;
	context = fresh;
	pthread_mutex_unlock(&lock);
	evo_context_free(&old);
}

static void _load(void)
{
	static double complained_of;

	if (_changed(&policy_file))
		_load_policy();
	if (_changed(&context_file))
		_load_context();
	/* only the loader writes "context": it may read it without the lock */
	if (context.written > 0 && context.written != complained_of &&
	    (double) time(NULL) - context.written > OLD_S) {
		complained_of = context.written;
		error("%s: %s was last written %.0f s ago: is the slurm-evo daemon running?", plugin_type,
		      context_file.path, (double) time(NULL) - context.written);
	}
}

/* For slurm-evo doctor, and for people; replaced whole, so that nobody reads half of it. */
static void _tell(void)
{
	static time_t last;
	char aside[sizeof(status_path) + 8];
	char id[sizeof(policy->id)] = "";
	FILE *file;
	__typeof__(told) now;

	pthread_mutex_lock(&lock);
	now = told;
	if (policy)
		memcpy(id, policy->id, sizeof(id));
	pthread_mutex_unlock(&lock);
	if (!news && last && time(NULL) - last < 10 && last >= now.at)
		return;
	last = time(NULL);
	news = false;
	snprintf(aside, sizeof(aside), "%s.new", status_path);
	if (!(file = fopen(aside, "we")))
		return; /* the folder is not ours to write: nobody is told, nothing else changes */
	fprintf(file,
		"{\"plugin\": \"%s\", \"slurm\": \"%s\", \"time\": %lld, \"policy\": \"%s\", \"policy_problem\": \"",
		EVO_VERSION, SLURM_VERSION_STRING, (long long) last, id);
	for (const char *c = policy_file.problem; *c; c++)
		fputc(*c == '"' || *c == '\\' ? '\'' : *c, file);
	fprintf(file, "\", \"context_time\": %.0f, \"context_problem\": \"", context.written);
	for (const char *c = context_file.problem; *c; c++)
		fputc(*c == '"' || *c == '\\' ? '\'' : *c, file);
	fprintf(file,
		"\", \"passes\": %llu, \"cut\": %llu, \"jobs\": %zu, \"seconds\": %.6f, \"longest\": %.6f, "
		"\"last_pass\": %lld}\n",
		(unsigned long long) now.passes, (unsigned long long) now.cut, now.jobs, now.seconds, now.longest,
		(long long) now.at);
	if (fclose(file) || rename(aside, status_path))
		unlink(aside);
}

static void *_loader(void *unused)
{
	(void) unused;
	prctl(PR_SET_NAME, "evo_loader", NULL, NULL, NULL);
	pthread_mutex_lock(&wake_lock);
	while (!stopping) {
		struct timespec until;

		pthread_mutex_unlock(&wake_lock);
		_load();
		_tell();
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += POLL_S;
		pthread_mutex_lock(&wake_lock);
		if (!stopping)
			pthread_cond_timedwait(&wake, &wake_lock, &until);
	}
	pthread_mutex_unlock(&wake_lock);
	return NULL;
}

/* The thread begins with the first question, when slurmctld has become the process that it stays. */
static void _start_loading(void)
{
	pthread_mutex_lock(&wake_lock);
	if (!loading && !stopping)
		loading = !pthread_create(&loader, NULL, _loader, NULL);
	pthread_mutex_unlock(&wake_lock);
}

/* "key=value" of the parameters, up to the next comma; false if it is not there. */
static bool _parameter(const char *key, char *value, size_t size)
{
	const size_t length = strlen(key);

	for (const char *at = slurm_conf.site_factor_params; at && *at; at += strcspn(at, ","), at += *at == ',') {
		if (strncmp(at, key, length) || at[length] != '=')
			continue;
		snprintf(value, size, "%.*s", (int) strcspn(at + length + 1, ","), at + length + 1);
		return true;
	}
	return false;
}

extern int init(void)
{
	char folder[3000], number[24];
	uint64_t milliseconds;

	if (!_parameter("dir", folder, sizeof(folder)))
		snprintf(folder, sizeof(folder), "/var/lib/slurm-evo/plugin/%s", slurm_conf.cluster_name);
	if (_parameter("budget_ms", number, sizeof(number))) {
		if (evo_count(number, 10000, &milliseconds) && milliseconds)
			budget_s = (double) milliseconds / 1000.0;
		else
			error("%s: budget_ms=%s is not between 1 and 10000: %d is used", plugin_type, number,
			      BUDGET_MS);
	}
	snprintf(policy_file.path, sizeof(policy_file.path), "%s/policy", folder);
	snprintf(context_file.path, sizeof(context_file.path), "%s/context", folder);
	snprintf(status_path, sizeof(status_path), "%s/status.json", folder);
	evo_context_default(&context);
	info("%s %s: reads %s, at most %.0f ms a pass", plugin_type, EVO_VERSION, folder, budget_s * 1000);
	/* No lock of slurmctld is held yet, so that the first pass already knows the policy. */
	_load();
	return SLURM_SUCCESS;
}

extern void fini(void)
{
	bool join;

	pthread_mutex_lock(&wake_lock);
	stopping = true;
	join = loading;
	pthread_cond_signal(&wake);
	pthread_mutex_unlock(&wake_lock);
	if (join)
		pthread_join(loader, NULL);
	loading = stopping = false;
	pthread_mutex_lock(&lock);
	free(policy);
	policy = NULL;
	evo_context_free(&context);
	evo_scale_free(&scale);
	free(ranked);
	free(table);
	ranked = NULL;
	table = NULL;
	room = 0;
	pthread_mutex_unlock(&lock);
}

/* The factor and what is added for lost age, in the range that Slurm stores (slurm.h, NICE_OFFSET). */
static uint32_t _stored(const evo_job_t *job, int64_t factor)
{
	const evo_known_t *known = evo_known(&context, job->id);

	factor += known ? known->points : 0;
	if (factor > 2000000000)
		factor = 2000000000;
	if (factor < -2000000000)
		factor = -2000000000;
	return (uint32_t) (factor + NICE_OFFSET);
}

/* One job, at submission, release and so on: its place among those of the last pass. */
extern void site_factor_p_set(job_record_t *record)
{
	assoc_mgr_lock_t locks = { .assoc = READ_LOCK, .qos = READ_LOCK };
	const time_t now = time(NULL);
	double column[EVO_TERMINALS], score;
	evo_job_t job;

	_start_loading();
	if (!IS_JOB_PENDING(record) || IS_JOB_REVOKED(record) || evo_untouchable(record, now) ||
	    evo_perhaps_array(record, now))
		return;
	assoc_mgr_lock(&locks);
	evo_from_slurm(&job, record);
	pthread_mutex_lock(&lock);
	if (policy && !evo_excluded(&context, &job)) {
		evo_features(&context, &job, (double) now, column, 1);
		evo_policy_scores(policy, column, 1, 1, &score);
		record->site_factor = _stored(&job, evo_scale_find(&scale, score, context.band));
	}
	pthread_mutex_unlock(&lock);
	assoc_mgr_unlock(&locks);
}

typedef struct {
	time_t now;
	double until;
	size_t seen, count;
	bool full, late;
} pass_t;

static bool _more_room(void)
{
	const size_t wanted = room ? room * 2 : 4096;
	evo_ranked_t *jobs = realloc(ranked, wanted * sizeof(*ranked));
	double *rows;

	if (jobs)
		ranked = jobs;
	/* by columns, one job after the other: rows are made when all are there */
	rows = jobs ? realloc(table, wanted * EVO_TERMINALS * sizeof(*table)) : NULL;
	if (rows) {
		table = rows;
		room = wanted;
	}
	return rows;
}

/* Called for every job of slurmctld, under its job write lock. */
static int _gather(void *item, void *argument)
{
	job_record_t *record = item;
	pass_t *pass = argument;
	evo_job_t job;

	if (!IS_JOB_PENDING(record) || IS_JOB_REVOKED(record) || !record->priority ||
	    evo_untouchable(record, pass->now))
		return 0;
	if (pass->seen++ < resume_at)
		return 0;
	/* a look at the clock costs little, but more than nothing */
	if (!(pass->seen % 64) && _clock() > pass->until) {
		pass->late = true;
		return -1;
	}
	if (pass->count == room && !_more_room()) {
		pass->full = true;
		return -1;
	}
	evo_from_slurm(&job, record);
	if (evo_excluded(&context, &job))
		return 0;
	evo_features(&context, &job, (double) pass->now, table + pass->count * EVO_TERMINALS, 1);
	ranked[pass->count] =
		(evo_ranked_t) { .submitted = evo_submitted(&context, &job), .id = job.id, .job = record };
	pass->count++;
	return 0;
}

/* Scores for what was gathered, a block at a time: the machine wants rows, the jobs came as columns. */
static void _score(size_t count)
{
	enum { BLOCK = 128 };
	double rows[EVO_TERMINALS * BLOCK], scores[BLOCK];

	for (size_t start = 0; start < count; start += BLOCK) {
		const size_t size = count - start < BLOCK ? count - start : BLOCK;

		for (size_t i = 0; i < size; i++)
			for (size_t row = 0; row < EVO_TERMINALS; row++)
				rows[row * BLOCK + i] = table[(start + i) * EVO_TERMINALS + row];
		evo_policy_scores(policy, rows, BLOCK, size, scores);
		for (size_t i = 0; i < size; i++)
			ranked[start + i].score = scores[i];
	}
}

/* All pending jobs, each PriorityCalcPeriod; priority/multifactor calls it under the job write lock. */
extern void site_factor_p_update(void)
{
	assoc_mgr_lock_t locks = { .assoc = READ_LOCK, .qos = READ_LOCK };
	pass_t pass = { .now = time(NULL) };
	double began;
	bool whole;

	_start_loading();
	assoc_mgr_lock(&locks);
	pthread_mutex_lock(&lock);
	began = _clock(); /* our own work: how long others hold the locks is theirs */
	pass.until = began + budget_s * 0.7;
	if (!policy)
		goto done;
	list_for_each_ro(job_list, _gather, &pass);
	_score(pass.count);
	whole = !pass.late && !pass.full && !resume_at;
	if (whole || !scale.count) {
		evo_rank(ranked, pass.count, context.band);
		evo_scale_set(&scale, ranked, pass.count, context.band);
	} else {
		/* Part of the queue: the order of the last whole pass is the measure. */
		for (size_t i = 0; i < pass.count; i++)
			ranked[i].factor = evo_scale_find(&scale, ranked[i].score, context.band);
	}
	for (size_t i = 0; i < pass.count; i++) {
		job_record_t *record = ranked[i].job;
		const evo_job_t job = { .id = ranked[i].id };

		record->site_factor = _stored(&job, ranked[i].factor);
	}
	if (pass.late && !told.cut++)
		info("%s: a pass was cut after %zu jobs to keep within %.0f ms; the next goes on from there",
		     plugin_type, pass.count, budget_s * 1000);
	resume_at = pass.late ? pass.seen - 1 : 0;
	told.passes++;
	told.jobs = pass.count;
	told.at = pass.now;
	told.seconds = _clock() - began;
	if (told.seconds > told.longest)
		told.longest = told.seconds;
done:
	pthread_mutex_unlock(&lock);
	assoc_mgr_unlock(&locks);
}
