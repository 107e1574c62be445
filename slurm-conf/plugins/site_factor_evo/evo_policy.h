/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A policy: three-address code over the features of pending jobs. slurm_evo/policy/compact.py writes the file,
 * slurm_evo/policy/plain.py says what each operator means. No Slurm headers here.
 */
#ifndef EVO_POLICY_H
#define EVO_POLICY_H

#include "evo_file.h"

#define EVO_POLICY_FIRST "slurm-evo-policy 1"
#define EVO_POLICY_BYTES 65536 /* of the largest file that is read */
#define EVO_TEXT 4096
#define EVO_CONSTANTS 128
#define EVO_CODE 128
#define EVO_REGISTERS 32

/* Rows of the feature table: the order of slurm_evo/policy/terminals.py. */
enum {
	EVO_WAIT,
	EVO_LIMIT,
	EVO_RUNTIME,
	EVO_GPUS,
	EVO_NODES,
	EVO_CPUS,
	EVO_WEIGHT,
	EVO_USER_USAGE,
	EVO_USER_PENDING,
	EVO_LOAD,
	EVO_PRESSURE,
	EVO_TERMINALS
};

typedef struct {
	uint8_t op, left, right, to; /* operands below EVO_TERMINALS are features, then constants, then registers */
} evo_code_t;

typedef struct {
	char id[16];
	char text[EVO_TEXT];
	double constants[EVO_CONSTANTS];
	unsigned constant_count;
	evo_code_t code[EVO_CODE];
	unsigned code_count;
	unsigned registers;
} evo_policy_t;

/* Read a policy from text, which is changed on the way. On refusal "policy" holds nothing of use. */
bool evo_policy_parse(evo_policy_t *policy, char *text, size_t size, evo_error_t *error);

/*
 * Scores of "count" jobs; larger runs first. "table" has EVO_TERMINALS rows of "stride" doubles (stride >= count).
 * Every score is finite: an overflow becomes the largest number of its sign, NaN the smallest number.
 */
void evo_policy_scores(const evo_policy_t *policy, const double *table, size_t stride, size_t count, double *scores);

#endif
