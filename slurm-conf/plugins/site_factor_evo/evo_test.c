/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Tests of what needs no Slurm; run by "make check" with sanitizers and under valgrind. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "evo_context.h"
#include "evo_rank.h"

static int failures;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			failures++; \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
		} \
	} while (0)

/* A copy with its checksum; from malloc. */
static char *_sealed(const char *body, size_t *size)
{
	char *text = malloc(strlen(body) + 32);

	*size = (size_t) sprintf(text, "%scrc32 %08x\n", body, (unsigned) evo_crc32(body, strlen(body)));
	return text;
}

#define HEAD "slurm-evo-policy 1\nid p-0123456789\ntext x\nterminals 11\n"

static bool _policy(evo_policy_t *policy, const char *body, evo_error_t *error)
{
	size_t size;
	char *text = _sealed(body, &size);
	const bool good = evo_policy_parse(policy, text, size, error);

	free(text);
	return good;
}

static double _score(const char *code, double wait, double limit)
{
	evo_policy_t policy;
	evo_error_t error = { "" };
	double column[EVO_TERMINALS] = { wait, limit }, score = -1;
	char body[1024];

	snprintf(body, sizeof(body), HEAD "registers 2\nconst 60.0\n%s", code);
	if (_policy(&policy, body, &error))
		evo_policy_scores(&policy, column, 1, 1, &score);
	else
		printf("refused: %s\n", error.text);
	return score;
}

static void operators_are_protected_as_gplearns(void)
{
	CHECK(_score("code add 0 11 0\n", 5, 0) == 65);
	CHECK(_score("code sub 0 1 0\n", 5, 7) == -2);
	CHECK(_score("code mul 0 1 0\n", 5, 7) == 35);
	CHECK(_score("code div 0 1 0\n", 5, 2) == 2.5);
	CHECK(_score("code div 0 1 0\n", 5, 0.001) == 1);
	CHECK(_score("code div 0 1 0\n", 5, -0.0011) < -4000);
	CHECK(_score("code max 0 1 0\n", 5, 7) == 7);
	CHECK(_score("code min 0 1 0\n", 5, 7) == 5);
	CHECK(_score("code sqrt 0 0 0\n", -9, 0) == 3);
	CHECK(_score("code log 0 0 0\n", -1, 0) == 0);
	CHECK(_score("code log 0 0 0\n", 0.0005, 0) == 0);
	CHECK(_score("code abs 0 0 0\n", -9, 0) == 9);
	CHECK(_score("code neg 0 0 0\n", -9, 0) == 9);
	CHECK(_score("code inv 0 0 0\n", 4, 0) == 0.25);
	CHECK(_score("code inv 0 0 0\n", 0.001, 0) == 0);
	CHECK(_score("code copy 11 11 0\n", 4, 0) == 60);
}

static void scores_are_always_finite(void)
{
	CHECK(_score("code mul 0 1 0\n", DBL_MAX, 10) == DBL_MAX);
	CHECK(_score("code mul 0 1 0\n", DBL_MAX, -10) == -DBL_MAX);
	/* infinity minus infinity */
	CHECK(_score("code mul 0 1 0\ncode sub 12 12 1\n", DBL_MAX, 10) == -DBL_MAX);
}

static void bad_policies_are_refused_with_a_reason(void)
{
	static const char *const bad[] = {
		"",
		"slurm-evo-policy 2\n",
		"slurm-evo-context 1\n",
		HEAD,
		HEAD "registers 1\n",
		HEAD "registers 0\ncode add 0 1 0\n",
		HEAD "registers 33\ncode add 0 1 0\n",
		HEAD "code add 0 1 0\n",
		HEAD "registers 1\ncode pow 0 1 0\n",
		HEAD "registers 1\ncode add 0 11 0\n", /* a register before it is written */
		HEAD "registers 1\ncode add 0 12 0\n",
		HEAD "registers 1\ncode add 0 1 1\n",
		HEAD "registers 1\ncode add 0 1\n",
		HEAD "registers 1\ncode add 0 -1 0\n",
		HEAD "registers 1\ncode add 0 1 0 0\n",
		HEAD "registers 1\nconst nan\ncode add 0 1 0\n",
		HEAD "registers 1\nconst inf\ncode add 0 1 0\n",
		HEAD "registers 1\nconst 1e999\ncode add 0 1 0\n",
		HEAD "registers 1\nconst 1.0x\ncode add 0 1 0\n",
		HEAD "registers 1\ncode add 0 1 0\nconst 1.0\n",
		HEAD "registers 1\n\ncode add 0 1 0\n",
		HEAD "registers 1\nregisters 2\ncode add 0 1 0\n",
		HEAD "colour blue\n",
		"slurm-evo-policy 1\nid p-0123456789\ntext x\nterminals 12\nregisters 1\ncode add 0 1 0\n",
		"slurm-evo-policy 1\nid zz\ntext x\nterminals 11\nregisters 1\ncode add 0 1 0\n",
		"slurm-evo-policy 1\ntext x\nterminals 11\nregisters 1\ncode add 0 1 0\n",
	};
	evo_policy_t policy;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		evo_error_t error = { "" };

		CHECK(!_policy(&policy, bad[i], &error));
		CHECK(error.text[0]);
	}
}

static void a_file_that_is_cut_or_changed_anywhere_is_refused(void)
{
	size_t size;
	char *whole = _sealed(HEAD "registers 1\nconst 60.0\ncode add 0 11 0\n", &size);
	char *copy = malloc(size + 1);
	evo_policy_t policy;
	evo_error_t error;

	memcpy(copy, whole, size + 1);
	CHECK(evo_policy_parse(&policy, copy, size, &error));
	for (size_t length = 0; length < size; length++) {
		memcpy(copy, whole, size);
		CHECK(!evo_policy_parse(&policy, copy, length, &error));
	}
	for (size_t at = 0; at < size; at++) {
		memcpy(copy, whole, size);
		copy[at] = (char) (copy[at] ^ 1);
		CHECK(!evo_policy_parse(&policy, copy, size, &error));
	}
	free(copy);
	free(whole);
}

static void only_small_regular_private_files_are_read(void)
{
	char path[] = "/tmp/evo-test-XXXXXX";
	const int fd = mkstemp(path);
	evo_error_t error;
	size_t size;
	char *text;

	CHECK(fd >= 0 && write(fd, "hello", 5) == 5);
	text = evo_read_file(path, 5, &size, &error);
	CHECK(text && size == 5 && !strcmp(text, "hello"));
	free(text);
	CHECK(!evo_read_file(path, 4, &size, &error) && strstr(error.text, "more than"));
	CHECK(!fchmod(fd, 0666) && !evo_read_file(path, 5, &size, &error) && strstr(error.text, "everybody"));
	close(fd);
	unlink(path);
	CHECK(!evo_read_file(path, 5, &size, &error) && strstr(error.text, "opened"));
	CHECK(!mkfifo(path, 0600) && !evo_read_file(path, 5, &size, &error) && strstr(error.text, "regular"));
	unlink(path);
	CHECK(!evo_read_file("/", 5, &size, &error));
}

static bool _context(evo_context_t *context, const char *body, evo_error_t *error)
{
	size_t size;
	char *text = _sealed(body, &size);

	return evo_context_parse(context, text, size, error);
}

#define CONTEXT "slurm-evo-context 1\n"

static void a_context_gives_each_job_its_features(void)
{
	evo_context_t context;
	evo_error_t error = { "" };
	double f[EVO_TERMINALS];
	evo_job_t job = { .id = 7, .submitted = 1000, .limit_s = 600, .gpus = 2, .nodes = 1, .cpus = 4,
			  .user = "ada", .account = "phy sics", .qos = "high", .partitions = "gpu,debug" };

	CHECK(_context(&context,
		       CONTEXT "time 1000\ncluster alpha\nload 0.25\npressure 3.5\nband 1000\nrecalc 60\nweight 2\n"
			       "weight qos high 3\nweight account phy%20sics 0.5\nweight partition gpu 4\n"
			       "runtime account phy%20sics 0.5\nuser ada 12.5 8\njob 7 400 0 11\njob 9 0 77 -3\n",
		       &error));
	evo_features(&context, &job, 1234, f, 1);
	CHECK(f[EVO_WAIT] == 1200 - 400);
	CHECK(f[EVO_LIMIT] == 600);
	CHECK(f[EVO_RUNTIME] == 300);
	CHECK(f[EVO_GPUS] == 2 && f[EVO_NODES] == 1 && f[EVO_CPUS] == 4);
	CHECK(f[EVO_WEIGHT] == 12);
	CHECK(f[EVO_USER_USAGE] == 12.5 && f[EVO_USER_PENDING] == 8);
	CHECK(f[EVO_LOAD] == 0.25 && f[EVO_PRESSURE] == 3.5);
	CHECK(evo_known(&context, 7)->points == 11 && evo_known(&context, 9)->points == -3);
	CHECK(!evo_known(&context, 8));
	job.id = 9;
	job.eligible = 1100;
	job.user = NULL;
	evo_features(&context, &job, 1234, f, 1);
	CHECK(f[EVO_WAIT] == 100 && f[EVO_RUNTIME] == 77);
	CHECK(f[EVO_USER_USAGE] == 0 && f[EVO_USER_PENDING] == 2);
	evo_context_free(&context);
}

static void owners_and_the_site_can_keep_jobs_out(void)
{
	evo_context_t context;
	evo_error_t error = { "" };
	evo_job_t job = { .user = "ada", .account = "physics", .qos = "normal", .partitions = "gpu,debug" };

	CHECK(_context(&context, CONTEXT "stay slurm-evo:stay\nonly partition gpu\nonly partition debug\nnever user bob\n",
		       &error));
	CHECK(!evo_excluded(&context, &job));
	job.comment = "please slurm-evo:stay thanks";
	CHECK(evo_excluded(&context, &job));
	job.comment = "slurm-evo:stayed";
	CHECK(!evo_excluded(&context, &job));
	job.admin_comment = "slurm-evo:stay";
	CHECK(evo_excluded(&context, &job));
	job.admin_comment = NULL;
	job.partitions = "gpu,long";
	CHECK(evo_excluded(&context, &job));
	job.partitions = "gpu";
	job.user = "bob";
	CHECK(evo_excluded(&context, &job));
	evo_context_free(&context);
}

static void bad_contexts_are_refused_whole(void)
{
	static const char *const bad[] = {
		"load nan", "load 1.5", "load", "pressure -1", "band 0", "band 3000000000", "recalc -1", "weight qos high",
		"weight qos high -1", "weight qos high 1 2", "weight qos  1", "user ada 1", "user ada x 1",
		"job 1 2 3", "job -1 0 0 0", "job 1 0 0 9e99", "job 4294967296 0 0 0", "stay", "only user", "never user a%",
		"never user a%zz", "never user a%00", "colour blue", "",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		evo_context_t context;
		evo_error_t error = { "" };
		char body[256];

		snprintf(body, sizeof(body), CONTEXT "user ada 1 1\n%s\n", bad[i]);
		CHECK(!_context(&context, body, &error));
		CHECK(strstr(error.text, "line 3"));
	}
}

static void slurms_texts_are_counted_as_in_python(void)
{
	CHECK(evo_tres_gpus("cpu=4,mem=8G,node=1,billing=4,gres/gpu=8,gres/gpu:a100=8") == 8);
	CHECK(evo_tres_gpus("cpu=4,gres/gpu:a100=2,gres/gpu:v100=1") == 3);
	CHECK(evo_tres_gpus("cpu=4,gres/gpu=2K") == 2048);
	CHECK(evo_tres_gpus("cpu=4,gres/shard=2") == -1);
	CHECK(evo_tres_gpus("") == -1 && evo_tres_gpus(NULL) == -1);
	CHECK(evo_tres_count("cpu=4,mem=8G", "cpu") == 4);
	CHECK(evo_gres_gpus("gres/gpu:a100:2") == 2);
	CHECK(evo_gres_gpus("gres:gpu:4,gres:shard:9") == 4);
	CHECK(evo_gres_gpus("gres/gpu=4") == 4);
	CHECK(evo_gres_gpus("gpu") == 1 && evo_gres_gpus("gpu:a100") == 1);
	CHECK(evo_gres_gpus("gpu:a100:2,gpu:v100:1") == 3);
	CHECK(evo_gres_gpus("gpux:3") == -1 && evo_gres_gpus(NULL) == -1);
}

static void a_ranking_fills_the_band_and_takes_newcomers_in_order(void)
{
	evo_ranked_t jobs[] = {
		{ .score = 5, .submitted = 10, .id = 1 }, { .score = 1, .submitted = 10, .id = 2 },
		{ .score = 5, .submitted = 9, .id = 3 },  { .score = 5, .submitted = 10, .id = 4 },
	};
	evo_scale_t scale = { 0 };
	int64_t last = 0;

	evo_rank(jobs, 4, 1000);
	CHECK(jobs[0].id == 2 && jobs[1].id == 4 && jobs[2].id == 1 && jobs[3].id == 3);
	CHECK(jobs[0].factor == 126 && jobs[3].factor == 876);
	for (double score = -1e6; score < 1e6; score += 1234)
		CHECK(evo_scale_find(&scale, score, 1000000) <= evo_scale_find(&scale, score + 1234, 1000000));
	CHECK(evo_scale_set(&scale, jobs, 4, 1000));
	for (double score = -10; score < 20; score += 0.25) {
		const int64_t factor = evo_scale_find(&scale, score, 1000);

		CHECK(factor >= 1 && factor <= 1000 && factor >= last);
		last = factor;
	}
	CHECK(evo_scale_find(&scale, 0, 1000) < 126 && evo_scale_find(&scale, 3, 1000) > 126);
	CHECK(evo_scale_find(&scale, 3, 1000) < 376 && evo_scale_find(&scale, 6, 1000) > 876);
	CHECK(evo_scale_find(&scale, DBL_MAX, 1000) <= 1000 && evo_scale_find(&scale, -DBL_MAX, 1000) >= 1);
	evo_rank(jobs, 4, 2);
	CHECK(jobs[0].factor == 1 && jobs[3].factor == 2);
	CHECK(evo_scale_set(&scale, jobs, 4, 2));
	for (double score = -10; score < 20; score += 0.25)
		CHECK(evo_scale_find(&scale, score, 2) >= 1 && evo_scale_find(&scale, score, 2) <= 2);
	CHECK(evo_scale_set(&scale, jobs, 0, 2));
	evo_scale_free(&scale);
}

int main(void)
{
	CHECK(evo_crc32("123456789", 9) == 0xcbf43926u);
	operators_are_protected_as_gplearns();
	scores_are_always_finite();
	bad_policies_are_refused_with_a_reason();
	a_file_that_is_cut_or_changed_anywhere_is_refused();
	only_small_regular_private_files_are_read();
	a_context_gives_each_job_its_features();
	owners_and_the_site_can_keep_jobs_out();
	bad_contexts_are_refused_whole();
	slurms_texts_are_counted_as_in_python();
	a_ranking_fills_the_band_and_takes_newcomers_in_order();
	printf(failures ? "%d failures\n" : "evo_test: all well\n", failures);
	return failures ? 1 : 0;
}
