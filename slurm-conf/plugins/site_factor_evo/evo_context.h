/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a policy needs beyond the job itself: weights, usage, predictions, rules. The slurm-evo daemon writes the file
 * (daemon/slurm_evo_daemon/plugin_files.py). No Slurm headers here.
 */
#ifndef EVO_CONTEXT_H
#define EVO_CONTEXT_H

#include "evo_policy.h"

#define EVO_CONTEXT_FIRST "slurm-evo-context 1"
#define EVO_CONTEXT_BYTES (4u << 20)
#define EVO_WORDS 32 /* opt-out words */
#define EVO_NAME 256

/* What a name is looked up for. */
enum {
	EVO_WEIGHT_QOS,
	EVO_WEIGHT_PARTITION,
	EVO_WEIGHT_ACCOUNT,
	EVO_RUNTIME_USER,
	EVO_RUNTIME_ACCOUNT,
	EVO_RUNTIME_PARTITION,
	EVO_USER, /* decayed usage and pending GPUs */
	EVO_ONLY_PARTITION,
	EVO_ONLY_QOS,
	EVO_ONLY_ACCOUNT,
	EVO_ONLY_USER,
	EVO_NEVER_PARTITION,
	EVO_NEVER_QOS,
	EVO_NEVER_ACCOUNT,
	EVO_NEVER_USER,
	EVO_SECTIONS
};

typedef struct {
	const char *name;
	double first, second;
	unsigned section;
} evo_named_t;

/* What the daemon knows of one job that slurmctld does not. */
typedef struct {
	uint64_t id;
	double submitted; /* when it was first seen, Unix seconds: a move restarts Slurm's own; 0: as Slurm says */
	double runtime; /* predicted, seconds; 0: no prediction for this job */
	int64_t points; /* of priority, for the age that a move lost */
} evo_known_t;

typedef struct {
	char *text; /* the names are in it */
	double written; /* Unix seconds */
	double load, pressure, default_weight;
	int64_t band, recalc_s;
	const char *words[EVO_WORDS];
	unsigned word_count;
	evo_named_t *named;
	size_t named_count, named_room;
	bool only[EVO_SECTIONS]; /* this list of "only" is not empty */
	evo_known_t *known;
	size_t known_count, known_room;
} evo_context_t;

/* One pending job, as the plugin finds it; texts may be NULL. */
typedef struct {
	uint64_t id;
	double submitted, eligible; /* Unix seconds; eligible 0 if it never had to wait for a time */
	double limit_s, gpus, nodes, cpus;
	const char *user, *account, *qos, *partitions, *comment, *extra, *admin_comment;
} evo_job_t;

/* What holds without a file: nothing is weighted, nobody is excluded but by the word slurm-evo:stay. */
void evo_context_default(evo_context_t *context);

/* Take over "text" (from malloc): on success the context owns it, on refusal it is freed. */
bool evo_context_parse(evo_context_t *context, char *text, size_t size, evo_error_t *error);

void evo_context_free(evo_context_t *context);

/* What is known of a job, or NULL. */
const evo_known_t *evo_known(const evo_context_t *context, uint64_t id);

/* Its owner opted out, or the configuration excludes it. */
bool evo_excluded(const evo_context_t *context, const evo_job_t *job);

/* When it was first submitted, by all that is known. */
double evo_submitted(const evo_context_t *context, const evo_job_t *job);

/* Its column of a feature table with "stride" doubles a row; "now" in Unix seconds. */
void evo_features(const evo_context_t *context, const evo_job_t *job, double now, double *table, size_t stride);

/* Devices, CPUs or nodes in a TRES text such as "cpu=4,mem=8G,node=1,gres/gpu=2,gres/gpu:a100=2". */
double evo_tres_gpus(const char *tres);
double evo_tres_count(const char *tres, const char *name);

/* Devices in a request such as "gres/gpu:a100:2" or "gres:gpu=4", each entry added. */
double evo_gres_gpus(const char *request);

#endif
