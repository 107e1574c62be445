/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "evo_file.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale;
static uint32_t crc_table[256];

static void _prepare(void)
{
	c_locale = newlocale(LC_ALL_MASK, "C", (locale_t) 0);
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;
		for (int bit = 0; bit < 8; bit++)
			c = (c & 1) ? 0xedb88320u ^ (c >> 1) : c >> 1;
		crc_table[i] = c;
	}
}

bool evo_refuse(evo_error_t *error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	/* What came from a file must not forge lines of a log. */
	for (char *c = error->text; *c; c++)
		if ((unsigned char) *c < ' ' || (unsigned char) *c > '~')
			*c = '?';
	return false;
}

char *evo_read_file(const char *path, size_t limit, size_t *size, evo_error_t *error)
{
	struct stat facts;
	char *text = NULL;
	size_t got = 0;
	/* Not blocking: a named pipe in place of the file must not hold anybody up. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0) {
		evo_refuse(error, "cannot be opened: %s", strerror(errno));
		return NULL;
	}
	if (fstat(fd, &facts) || !S_ISREG(facts.st_mode)) {
		evo_refuse(error, "is no regular file");
		goto refused;
	}
	if (facts.st_mode & S_IWOTH) {
		evo_refuse(error, "may be written by everybody");
		goto refused;
	}
	if (facts.st_size < 0 || (uintmax_t) facts.st_size > limit) {
		evo_refuse(error, "has %jd bytes, more than the %zu that are read", (intmax_t) facts.st_size, limit);
		goto refused;
	}
	if (!(text = malloc((size_t) facts.st_size + 1))) {
		evo_refuse(error, "no memory");
		goto refused;
	}
	while (got < (size_t) facts.st_size) {
		ssize_t more = read(fd, text + got, (size_t) facts.st_size - got);
		if (more < 0 && errno == EINTR)
			continue;
		if (more < 0) {
			evo_refuse(error, "cannot be read: %s", strerror(errno));
			goto refused;
		}
		if (!more)
			break;
		got += (size_t) more;
	}
	close(fd);
	text[got] = '\0';
	*size = got;
	return text;

refused:
	free(text);
	close(fd);
	return NULL;
}

uint32_t evo_crc32(const char *data, size_t size)
{
	uint32_t crc = 0xffffffffu;

	pthread_once(&once, _prepare);
	for (size_t i = 0; i < size; i++)
		crc = crc_table[(crc ^ (unsigned char) data[i]) & 0xff] ^ (crc >> 8);
	return crc ^ 0xffffffffu;
}

bool evo_open_lines(evo_lines_t *lines, char *text, size_t size, const char *first, evo_error_t *error)
{
	/* "crc32 " and eight digits and a line break */
	const size_t last = 15;
	size_t body;
	char given[9], *line;
	unsigned long wanted;

	if (size < last || text[size - 1] != '\n' || memcmp(text + size - last, "crc32 ", 6) ||
	    (size > last && text[size - last - 1] != '\n'))
		return evo_refuse(error, "is cut off: it does not end in a line crc32");
	body = size - last;
	memcpy(given, text + size - 9, 8);
	given[8] = '\0';
	if (strspn(given, "0123456789abcdef") != 8)
		return evo_refuse(error, "is damaged: its checksum is not readable");
	wanted = strtoul(given, NULL, 16);
	if (evo_crc32(text, body) != wanted)
		return evo_refuse(error, "is damaged: its checksum does not match");
	if (memchr(text, '\0', body))
		return evo_refuse(error, "is no text: it holds a NUL");
	lines->next = text;
	lines->end = text + body;
	lines->number = 0;
	line = evo_next_line(lines);
	if (!line || strcmp(line, first))
		return evo_refuse(error, "begins with \"%.40s\", not with \"%s\"", line ? line : "", first);
	return true;
}

char *evo_next_line(evo_lines_t *lines)
{
	char *line = lines->next, *stop;

	if (line >= lines->end)
		return NULL;
	stop = memchr(line, '\n', (size_t) (lines->end - line));
	if (!stop) /* the line before the checksum always ends: see evo_open_lines */
		return NULL;
	*stop = '\0';
	lines->next = stop + 1;
	lines->number++;
	return line;
}

char *evo_word(char **rest)
{
	char *word = *rest, *space;

	if (!word || !*word)
		return NULL;
	space = strchr(word, ' ');
	if (space) {
		*space = '\0';
		*rest = space + 1;
	} else {
		*rest = NULL;
	}
	return *word ? word : NULL;
}

bool evo_number(const char *word, double *value)
{
	char *stop;

	/* Decimal only: strtod would also take "inf", "nan" and leading space. */
	if (!word || !*word || strlen(word) > 40 || strspn(word, "0123456789+-.eE") != strlen(word))
		return false;
	pthread_once(&once, _prepare);
	*value = c_locale ? strtod_l(word, &stop, c_locale) : strtod(word, &stop);
	return !*stop && stop != word && isfinite(*value);
}

bool evo_count(const char *word, uint64_t most, uint64_t *value)
{
	if (!word || !*word || strlen(word) > 19 || strspn(word, "0123456789") != strlen(word))
		return false;
	*value = strtoull(word, NULL, 10);
	return *value <= most;
}
