/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "evo_policy.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROTECTED 0.001 /* gplearn's distance from zero; slurm_evo/policy/expression.py */
#define BLOCK 128 /* jobs at a time: all registers of a block fit on the stack */

static const char *const operators[] = { "copy", "add", "sub", "mul", "div", "max",
					 "min", "sqrt", "log", "abs", "neg", "inv" };
enum { COPY, ADD, SUB, MUL, DIV, MAX, MIN, SQRT, LOG, ABS, NEG, INV, OPERATORS };

static bool _code(evo_policy_t *policy, char *rest, uint64_t *written, evo_error_t *error)
{
	evo_code_t *code = &policy->code[policy->code_count];
	const unsigned first_register = EVO_TERMINALS + policy->constant_count;
	uint64_t operand[2], to;
	const char *name = evo_word(&rest);
	unsigned op = 0;

	if (policy->code_count == EVO_CODE)
		return evo_refuse(error, "has more than %d lines of code", EVO_CODE);
	while (op < OPERATORS && (!name || strcmp(name, operators[op])))
		op++;
	if (op == OPERATORS)
		return evo_refuse(error, "has an unknown operator \"%.20s\"", name ? name : "");
	for (int side = 0; side < 2; side++) {
		if (!evo_count(evo_word(&rest), first_register + policy->registers - 1, &operand[side]))
			return evo_refuse(error, "has an operand that does not exist");
		if (operand[side] >= first_register && !(*written >> (operand[side] - first_register) & 1))
			return evo_refuse(error, "reads a register before it is written");
	}
	if (!evo_count(evo_word(&rest), policy->registers - 1, &to) || rest)
		return evo_refuse(error, "writes a register that does not exist");
	*code = (evo_code_t) { (uint8_t) op, (uint8_t) operand[0], (uint8_t) operand[1], (uint8_t) to };
	*written |= (uint64_t) 1 << to;
	policy->code_count++;
	return true;
}

static bool _line(evo_policy_t *policy, char *line, uint64_t *written, evo_error_t *error)
{
	char *rest = line;
	const char *key;
	uint64_t number;

	if (!strncmp(line, "text ", 5)) {
		if (strlen(line + 5) >= sizeof(policy->text))
			return evo_refuse(error, "has too long a text");
		strcpy(policy->text, line + 5);
		return true;
	}
	key = evo_word(&rest);
	if (!key)
		return evo_refuse(error, "has an empty line");
	if (!strcmp(key, "code")) {
		if (!policy->registers)
			return evo_refuse(error, "has code before it says how many registers");
		return _code(policy, rest, written, error);
	}
	if (!strcmp(key, "id")) {
		if (!rest || strlen(rest) != 12 || strspn(rest, "p-0123456789abcdef") != 12)
			return evo_refuse(error, "has no readable id");
		strcpy(policy->id, rest);
		return true;
	}
	if (!strcmp(key, "terminals")) {
		if (!evo_count(rest, 1000, &number) || number != EVO_TERMINALS)
			return evo_refuse(error, "is for %.8s terminals, this plugin knows %d", rest ? rest : "no",
					  EVO_TERMINALS);
		return true;
	}
	if (!strcmp(key, "registers")) {
		if (policy->registers || !evo_count(rest, EVO_REGISTERS, &number) || !number)
			return evo_refuse(error, "needs 1 to %d registers, said once", EVO_REGISTERS);
		policy->registers = (unsigned) number;
		return true;
	}
	if (!strcmp(key, "const")) {
		if (policy->code_count || policy->constant_count == EVO_CONSTANTS)
			return evo_refuse(error, "has too many constants, or one behind code");
		if (!evo_number(rest, &policy->constants[policy->constant_count]))
			return evo_refuse(error, "has a constant that is not a finite number: \"%.40s\"", rest ? rest : "");
		policy->constant_count++;
		return true;
	}
	return evo_refuse(error, "has an unknown key \"%.20s\"", key);
}

bool evo_policy_parse(evo_policy_t *policy, char *text, size_t size, evo_error_t *error)
{
	evo_lines_t lines;
	evo_error_t why;
	uint64_t written = 0;
	char *line;

	memset(policy, 0, sizeof(*policy));
	if (!evo_open_lines(&lines, text, size, EVO_POLICY_FIRST, error))
		return false;
	while ((line = evo_next_line(&lines)))
		if (!_line(policy, line, &written, &why))
			return evo_refuse(error, "line %u %s", lines.number, why.text);
	if (!policy->code_count || !policy->id[0] || !policy->text[0])
		return evo_refuse(error, "lacks its id, its text or its code");
	return true;
}

/* Where an operand begins, and whether it has one value for each job (1) or one for all (0). */
static const double *_operand(const evo_policy_t *policy, const double *table, size_t stride, size_t start,
			      double (*registers)[BLOCK], unsigned operand, size_t *step)
{
	*step = 1;
	if (operand < EVO_TERMINALS)
		return table + operand * stride + start;
	operand -= EVO_TERMINALS;
	if (operand < policy->constant_count) {
		*step = 0;
		return &policy->constants[operand];
	}
	return registers[operand - policy->constant_count];
}

#define EACH(expression) \
	for (size_t i = 0; i < count; i++) { \
		const double x = left[i * a]; \
		const double y = right[i * b]; \
		(void) y; \
		to[i] = (expression); \
	} \
	break

static void _apply(unsigned op, const double *left, size_t a, const double *right, size_t b, double *to, size_t count)
{
	switch (op) {
	case ADD: EACH(x + y);
	case SUB: EACH(x - y);
	case MUL: EACH(x * y);
	case DIV: EACH(fabs(y) > PROTECTED ? x / y : 1.0);
	case MAX: EACH(y > x || isnan(x) ? y : x);
	case MIN: EACH(y < x || isnan(x) ? y : x);
	case SQRT: EACH(sqrt(fabs(x)));
	case LOG: EACH(fabs(x) > PROTECTED ? log(fabs(x)) : 0.0);
	case ABS: EACH(fabs(x));
	case NEG: EACH(-x);
	case INV: EACH(fabs(x) > PROTECTED ? 1.0 / x : 0.0);
	default: EACH(x);
	}
}

void evo_policy_scores(const evo_policy_t *policy, const double *table, size_t stride, size_t count, double *scores)
{
	double registers[EVO_REGISTERS][BLOCK];

	for (size_t start = 0; start < count; start += BLOCK) {
		const size_t size = count - start < BLOCK ? count - start : BLOCK;
		const double *last;

		for (unsigned line = 0; line < policy->code_count; line++) {
			const evo_code_t *code = &policy->code[line];
			size_t a, b;
			const double *left = _operand(policy, table, stride, start, registers, code->left, &a);
			const double *right = _operand(policy, table, stride, start, registers, code->right, &b);

			_apply(code->op, left, a, right, b, registers[code->to], size);
		}
		last = registers[policy->code[policy->code_count - 1].to];
		for (size_t i = 0; i < size; i++) {
			if (isnan(last[i]))
				scores[start + i] = -DBL_MAX;
			else
				scores[start + i] = fmin(fmax(last[i], -DBL_MAX), DBL_MAX);
		}
	}
}
