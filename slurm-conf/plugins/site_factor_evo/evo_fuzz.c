/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Throws damaged files at the readers: whatever they take must be safe to use. With libFuzzer (clang -fsanitize=fuzzer)
 * LLVMFuzzerTestOneInput is the entry; built with EVO_OWN_MAIN it makes its own inputs, the same for the same seed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evo_context.h"
#include "evo_rank.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* With a right checksum put behind it, so that what lies below it is reached too. */
static char *_sealed(const uint8_t *data, size_t size, size_t *all)
{
	char *text = malloc(size + 32);

	memcpy(text, data, size);
	*all = size + (size_t) sprintf(text + size, "crc32 %08x\n", (unsigned) evo_crc32(text, size));
	return text;
}

static unsigned taken;

static void _use_policy(char *text, size_t size)
{
	evo_policy_t policy;
	evo_error_t error;
	double rows[EVO_TERMINALS * 200], scores[200];

	if (!evo_policy_parse(&policy, text, size, &error))
		return;
	taken++;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		rows[i] = (double) (i % 37) * 1e3 - 5;
	evo_policy_scores(&policy, rows, 200, 200, scores);
	for (size_t i = 0; i < 200; i++)
		if (!isfinite(scores[i]))
			abort();
}

static void _use_context(char *text, size_t size)
{
	evo_context_t context;
	evo_error_t error;
	evo_job_t job = { .id = 7, .submitted = 1000, .limit_s = 60, .gpus = 1, .nodes = 1, .cpus = 1, .user = "ada",
			  .account = "physics", .qos = "high", .partitions = "gpu,debug", .comment = "a b" };
	double column[EVO_TERMINALS];

	if (!evo_context_parse(&context, text, size, &error)) /* it freed the text */
		return;
	taken++;
	(void) evo_excluded(&context, &job);
	evo_features(&context, &job, 2000, column, 1);
	for (size_t i = 0; i < EVO_TERMINALS; i++)
		if (isnan(column[i]))
			abort();
	evo_context_free(&context);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t all;
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	(void) evo_tres_gpus(text);
	(void) evo_gres_gpus(text);
	_use_policy(text, size);
	free(text);
	text = _sealed(data, size, &all);
	_use_policy(text, all);
	free(text);
	_use_context(_sealed(data, size, &all), all);
	return 0;
}

#ifdef EVO_OWN_MAIN
static const char *const corpus[] = {
	"slurm-evo-policy 1\nid p-0123456789\ntext wait + 60\nterminals 11\nregisters 3\nconst 60.0\nconst -1e+300\n"
	"code add 0 11 0\ncode div 13 12 1\ncode log 14 14 2\ncode max 15 13 0\n",
	"slurm-evo-context 1\ntime 1000\ncluster alpha\nload 0.5\npressure 2\nband 1000000\nrecalc 60\nweight 1.5\n"
	"stay slurm-evo:stay\nonly user ada\nnever account p%20q\nweight qos high 2\nweight partition gpu 0.5\n"
	"runtime user ada 0.25\nuser ada 123.5 4\nuser bob 0 0\njob 7 900 0 12\njob 8 0 77 -4\nscale 1.5 200\n",
	"cpu=4,mem=8G,node=1,gres/gpu=2,gres/gpu:a100=2", "gres/gpu:a100:2,gres:gpu=4(S:0-1),gpu",
};
static const char *const pieces[] = { "\n", " ", "nan", "-1", "0", "1e308", "4294967295", "18446744073709551616", "code ",
				      "const ", "user ", "job ", "%20", "%", "registers 33\n", "weight qos ", "=", ":", ",",
				      "999999999999999999999999999999999999999999999999", "gpu", "\0" };

static uint64_t state = 1;

static size_t _below(size_t limit)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (size_t) (state >> 33) % (limit ? limit : 1);
}

int main(int argc, char **argv)
{
	const long rounds = argc > 1 ? atol(argv[1]) : 20000;
	uint8_t data[4096];

	for (long round = 0; round < rounds; round++) {
		const char *seed = corpus[_below(sizeof(corpus) / sizeof(*corpus))];
		size_t size = strlen(seed);

		memcpy(data, seed, size);
		for (size_t change = _below(6); change--;) {
			const char *piece = pieces[_below(sizeof(pieces) / sizeof(*pieces))];
			const size_t length = *piece ? strlen(piece) : 1, at = _below(size + 1);

			switch (_below(4)) {
			case 0: /* one byte */
				if (at < size)
					data[at] = (uint8_t) _below(256);
				break;
			case 1: /* a piece put in */
				if (size + length < sizeof(data)) {
					memmove(data + at + length, data + at, size - at);
					memcpy(data + at, piece, length);
					size += length;
				}
				break;
			case 2: /* a stretch taken out */
				if (at < size) {
					const size_t gone = 1 + _below(size - at < 20 ? size - at : 20);

					memmove(data + at, data + at + gone, size - at - gone);
					size -= gone;
				}
				break;
			default: /* a stretch said twice */
				if (at < size && size * 2 < sizeof(data)) {
					const size_t more = 1 + _below(size - at);

					memmove(data + at + more, data + at, size - at);
					size += more;
				}
			}
		}
		LLVMFuzzerTestOneInput(data, size);
	}
	printf("evo_fuzz: %ld inputs, %u of them taken as files, nothing broke\n", rounds, taken);
	return taken ? 0 : 1;
}
#endif
