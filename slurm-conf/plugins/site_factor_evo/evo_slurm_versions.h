/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The one place where this plugin meets Slurm's internals, so that a new release is looked at here and nowhere else.
 *
 * The job fields that are read have the same names and meanings in 22.05, 24.11 and 25.05, but for those below; what
 * else changed is where the records are declared, and their types' names.
 */
#ifndef EVO_SLURM_VERSIONS_H
#define EVO_SLURM_VERSIONS_H

#include "src/common/slurm_xlator.h"

#include "src/common/assoc_mgr.h"
#include "src/common/log.h"
#include "src/slurmctld/slurmctld.h" /* brings job_record.h since 23.11, has the records itself before */

#include "evo_context.h"

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 5, 0)
#error "site_factor/evo is written for Slurm 22.05 and later"
#endif

/* sbatch --extra came with 23.02. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
#define EVO_EXTRA(record) ((record)->extra)
#else
#define EVO_EXTRA(record) NULL
#endif

#define EVO_UNLIMITED_S (365.0 * 86400) /* as slurm_evo/slurm/answers.py counts a job without a limit */

/* Fill "job" from Slurm's record; its texts belong to the record. The caller holds assoc and qos read locks. */
static inline void evo_from_slurm(evo_job_t *job, const job_record_t *record)
{
	const __typeof__(*record->details) *details = record->details;
	uint32_t limit = record->time_limit;
	double nodes, tasks;

	memset(job, 0, sizeof(*job));
	if (limit == NO_VAL && record->part_ptr)
		limit = record->part_ptr->max_time;
	nodes = details->min_nodes ? details->min_nodes : 1;
	tasks = details->num_tasks ? details->num_tasks : 1;
	job->id = record->job_id;
	job->submitted = (double) details->submit_time;
	job->eligible = (double) details->begin_time;
	job->limit_s = (limit == NO_VAL || limit == INFINITE) ? EVO_UNLIMITED_S : limit * 60.0;
	job->nodes = nodes;
	job->cpus = details->min_cpus ? details->min_cpus : 1;
	job->gpus = evo_tres_gpus(record->tres_fmt_req_str);
	if (job->gpus < 0) { /* AccountingStorageTRES does not track gres/gpu: the request itself */
		job->gpus = fmax(evo_gres_gpus(record->tres_per_job), 0);
		job->gpus = fmax(evo_gres_gpus(record->tres_per_node) * nodes, job->gpus);
		job->gpus = fmax(evo_gres_gpus(record->tres_per_task) * tasks, job->gpus);
	}
	job->user = record->assoc_ptr && record->assoc_ptr->user ? record->assoc_ptr->user : record->user_name;
	job->account = record->account ? record->account : "";
	job->qos = record->qos_ptr && record->qos_ptr->name ? record->qos_ptr->name : "";
	job->partitions = record->partition;
	job->comment = record->comment;
	job->extra = EVO_EXTRA(record);
	job->admin_comment = record->admin_comment;
}

/* The kinds of job that slurm-evo never touches (daemon/slurm_evo_daemon/rules.py). */
static inline bool evo_untouchable(const job_record_t *record, time_t now)
{
	const __typeof__(*record->details) *details = record->details;

	return !details || record->array_recs || record->array_task_id != NO_VAL || record->het_job_id ||
	       !record->batch_flag || (record->bit_flags & CRON_JOB) || record->direct_set_prio ||
	       (details->dependency && details->dependency[0]) || (record->resv_name && record->resv_name[0]) ||
	       details->begin_time > now;
}

/*
 * An array looks like a single job until just after its first priority is set; but job_independent() has not given it
 * a begin time by then, as it has every other job that is ready. (A released job has none either, but is older.)
 */
static inline bool evo_perhaps_array(const job_record_t *record, time_t now)
{
	return !record->details->begin_time && now - record->details->submit_time < 5;
}

#endif
