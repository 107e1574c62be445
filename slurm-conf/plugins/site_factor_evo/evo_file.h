/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Files as slurm-evo writes them: ASCII lines, the first names kind and version, the last is a checksum.
 * No Slurm headers here: this part is tested and fuzzed by itself.
 */
#ifndef EVO_FILE_H
#define EVO_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EVO_MESSAGE 256

/* Why something was refused; one sentence, no line break. */
typedef struct {
	char text[EVO_MESSAGE];
} evo_error_t;

bool evo_refuse(evo_error_t *error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Read a whole regular file, at most "limit" bytes. The caller frees the result; it ends in a NUL that does not
 * count. NULL if it cannot be read or is larger: nothing of a larger one is kept in memory.
 */
char *evo_read_file(const char *path, size_t limit, size_t *size, evo_error_t *error);

/* The lines of a file under its checksum; walks through "text", which it changes. */
typedef struct {
	char *next;
	char *end;
	unsigned number;
} evo_lines_t;

/* Check length, bytes, checksum and the first line; after it the second line is the next one. */
bool evo_open_lines(evo_lines_t *lines, char *text, size_t size, const char *first, evo_error_t *error);

/* The next line without its line break, or NULL behind the last. */
char *evo_next_line(evo_lines_t *lines);

/* Cut the next word off a line; NULL if there is none. Words are separated by one space. */
char *evo_word(char **rest);

/* A finite number in a whole word, whatever the locale. */
bool evo_number(const char *word, double *value);

/* A whole number from 0 to "most" in a whole word. */
bool evo_count(const char *word, uint64_t most, uint64_t *value);

/* CRC-32 as in zlib. */
uint32_t evo_crc32(const char *data, size_t size);

#endif
