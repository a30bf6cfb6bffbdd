/* Scans the body of a function: scopes, declarations of registers, labels and instructions. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "probe/weave_inside.h"

enum { DEPTH_MAX = 64, BUCKETS = 1 << 12 };

struct label {
	struct view name;
	uint32_t scope;
	uint32_t next; /* in its bucket; index + 1 */
	uint32_t bucket;
};

struct declared {
	struct view name;
	bool is_range; /* name<n> declares name0 to name(n-1) */
	uint32_t width;
	uint32_t count; /* of a range */
};

/* What is known at one place of a body. Scopes are numbered; the open ones are on a stack. */
struct body {
	struct function *function;
	uint32_t scopes[DEPTH_MAX];
	size_t registers_before[DEPTH_MAX], labels_before[DEPTH_MAX];
	unsigned depth;
	uint32_t scope_count;
	struct label *labels; /* of the open scopes */
	size_t label_count, label_room;
	uint32_t buckets[BUCKETS];
	struct declared *registers; /* likewise */
	size_t register_count, register_room;
	uint32_t indices[POINT_EXIT + 1];
	size_t section; /* index in scan::points */
	bool has_section, has_first;
	bool is_over; /* the last instruction does not continue with the next one */
	bool was_trap;
};

bool insn_is(const struct insn *insn, const char *name)
{
	return strlen(name) == insn->name.length && !memcmp(insn->name.text, name, insn->name.length);
}

bool insn_has(const struct insn *insn, const char *suffix)
{
	for (unsigned i = 0; i < insn->suffix_count; i++)
		if (strlen(suffix) == insn->suffixes[i].length &&
		    !memcmp(insn->suffixes[i].text, suffix, insn->suffixes[i].length))
			return true;
	return false;
}

static struct view view_of(const struct ptx_token *token)
{
	return (struct view){ token->text, token->length };
}

static size_t offset_of(const struct scan *scan)
{
	return (size_t)(scan_token(scan)->text - scan->text);
}

static int no_memory(struct scan *scan)
{
	return bf_fail(scan->err, ENOMEM, "not enough memory");
}

/* ---- registers */

static uint32_t width_of_type(const struct ptx_token *t)
{
	const char *end = t->text + t->length, *at = t->text + 1;

	while (at < end && !isdigit((unsigned char)*at))
		at++;
	return at < end && (t->text[1] == 'b' || t->text[1] == 'u' || t->text[1] == 's' || t->text[1] == 'f')
		       ? (uint32_t)strtoul(at, NULL, 10)
		       : 0;
}

/* .reg .b64 %a, %b<4>; The lexer is after .reg. */
static int scan_registers(struct scan *scan)
{
	const struct ptx_token *t = scan_token(scan);
	struct body *body = scan->body;
	uint32_t width = 0;
	bool is_vector = false;

	while (t->kind == PTX_TOKEN_DOT) {
		is_vector |= t->length == 3 && t->text[1] == 'v';
		width = width_of_type(t);
		ptx_lex_next(&scan->lex);
	}
	while (t->kind == PTX_TOKEN_WORD) {
		struct declared *declared = scan_add((void **)&body->registers, &body->register_count,
						     &body->register_room, sizeof(*declared));

		if (!declared)
			return no_memory(scan);
		declared->name = view_of(t);
		declared->width = is_vector ? 0 : width;
		ptx_lex_next(&scan->lex);
		if (ptx_token_is(t, "<")) {
			ptx_lex_next(&scan->lex);
			declared->is_range = true;
			declared->count = t->kind == PTX_TOKEN_INT && t->bits < UINT32_MAX ? (uint32_t)t->bits
											   : 0;
			ptx_lex_next(&scan->lex);
			if (!ptx_token_is(t, ">"))
				return scan_refuse(scan, t->line, "a declaration is not understood");
			ptx_lex_next(&scan->lex);
		}
		if (!ptx_token_is(t, ","))
			break;
		ptx_lex_next(&scan->lex);
	}
	if (!ptx_token_is(t, ";"))
		return scan_refuse(scan, t->line, "a declaration is not understood");
	ptx_lex_next(&scan->lex);
	return 0;
}

static bool declares(const struct declared *declared, const struct view *name)
{
	uint64_t number = 0;

	if (!declared->is_range)
		return view_is(&declared->name, name);
	if (name->length <= declared->name.length || name->length > declared->name.length + 9 ||
	    memcmp(name->text, declared->name.text, declared->name.length) != 0)
		return false;
	for (size_t i = declared->name.length; i < name->length; i++) {
		if (!isdigit((unsigned char)name->text[i]))
			return false;
		number = 10 * number + (uint64_t)(name->text[i] - '0');
	}
	return number < declared->count;
}

static uint32_t register_width(const struct scan *scan, const struct view *name)
{
	for (size_t i = scan->body->register_count; i; i--)
		if (declares(&scan->body->registers[i - 1], name))
			return scan->body->registers[i - 1].width;
	return 0;
}

/* ---- labels */

static uint32_t bucket_of(const struct view *name)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < name->length; i++)
		hash = (hash ^ (uint8_t)name->text[i]) * 16777619u;
	return hash % BUCKETS;
}

static bool has_label(const struct body *body, const struct view *name)
{
	for (uint32_t at = body->buckets[bucket_of(name)]; at; at = body->labels[at - 1].next)
		if (view_is(&body->labels[at - 1].name, name))
			return true;
	return false;
}

/* A branch of this scope to the name meant this label, and not one of a scope around it. */
static void unloop(struct scan *scan, const struct view *name, uint32_t scope)
{
	for (size_t i = scan->body->function->from; i < scan->point_count; i++) {
		struct point *point = &scan->points[i];

		if (point->kind == POINT_LOOP && point->scope >= scope && view_is(&point->label, name))
			point->label.length = 0;
	}
}

static int add_label(struct scan *scan, struct view name)
{
	struct body *body = scan->body;
	bool was_known = has_label(body, &name);
	struct label *label =
		scan_add((void **)&body->labels, &body->label_count, &body->label_room, sizeof(*label));

	if (!label)
		return no_memory(scan);
	label->name = name;
	label->scope = body->scopes[body->depth];
	label->bucket = bucket_of(&name);
	label->next = body->buckets[label->bucket];
	body->buckets[label->bucket] = (uint32_t)body->label_count;
	if (was_known)
		unloop(scan, &name, label->scope);
	body->has_section = false;
	body->is_over = false;
	return 0;
}

static int enter_scope(struct scan *scan)
{
	struct body *body = scan->body;

	if (body->depth + 1 == DEPTH_MAX)
		return scan_refuse(scan, scan_token(scan)->line, "scopes are nested too deeply");
	body->depth++;
	body->scopes[body->depth] = ++body->scope_count;
	body->registers_before[body->depth] = body->register_count;
	body->labels_before[body->depth] = body->label_count;
	return 0;
}

static void leave_scope(struct body *body)
{
	while (body->label_count > body->labels_before[body->depth]) {
		const struct label *label = &body->labels[--body->label_count];

		body->buckets[label->bucket] = label->next;
	}
	body->register_count = body->registers_before[body->depth];
	body->depth--;
}

/* ---- points */

static struct point *add_point(struct scan *scan, enum point_kind kind, const struct insn *insn)
{
	struct point *point =
		scan_add((void **)&scan->points, &scan->point_count, &scan->point_room, sizeof(*point));

	if (!point)
		return NULL;
	point->kind = kind;
	point->index = scan->body->indices[kind]++;
	if (!insn)
		return point;
	point->at = insn->at;
	point->guard = insn->guard;
	point->is_guard_negated = insn->is_guard_negated;
	return point;
}

static int find_access(struct scan *scan, const struct insn *insn)
{
	struct point found = { 0 }, *point;
	struct point *section = &scan->points[scan->body->section];

	switch (access_find(scan, insn, register_width, &found)) {
	case ACCESS_NONE:
		return 0;
	case ACCESS_SKIPPED:
		scan->body->function->skipped++;
		return 0;
	default:
		break;
	}
	if (!found.is_generic) {
		section->read_bytes += found.how != 1 ? found.bytes : 0;
		section->write_bytes += found.how ? found.bytes : 0;
	}
	point = add_point(scan, POINT_ACCESS, insn);
	if (!point)
		return no_memory(scan);
	found.kind = point->kind;
	found.at = point->at;
	found.guard = point->guard;
	found.is_guard_negated = point->is_guard_negated;
	found.index = point->index;
	*point = found;
	return 0;
}

static int find_branch(struct scan *scan, const struct insn *insn)
{
	struct body *body = scan->body;
	const struct view *label = &insn->operands[0].base;
	struct point *point;

	if (!insn->operand_count || !label->length || !has_label(body, label))
		return 0;
	point = add_point(scan, POINT_LOOP, insn);
	if (!point)
		return no_memory(scan);
	point->label = *label;
	point->scope = body->scopes[body->depth];
	return 0;
}

static int find_exit(struct scan *scan, const struct insn *insn)
{
	struct function *function = scan->body->function;

	if (!function->is_entry) {
		if (insn_is(insn, "exit") && !scan->body->was_trap)
			scan->exits_inside = function->name;
		return 0;
	}
	return add_point(scan, POINT_EXIT, insn) ? 0 : no_memory(scan);
}

static int find_call(struct scan *scan, const struct insn *insn)
{
	struct view *call;

	for (unsigned i = 0; i < insn->operand_count; i++) {
		const struct view *name = &insn->operands[i].base;

		if (!name->length)
			continue;
		if (register_width(scan, name)) {
			scan->body->function->calls_pointers = true;
			return 0;
		}
		call = scan_add((void **)&scan->calls, &scan->call_count, &scan->call_room, sizeof(*call));
		if (!call)
			return no_memory(scan);
		*call = *name;
		return 0;
	}
	return 0;
}

static bool is_jump(const struct insn *insn)
{
	return insn_is(insn, "bra") || insn_is(insn, "brx") || insn_is(insn, "ret") || insn_is(insn, "exit");
}

static int find_points(struct scan *scan, const struct insn *insn)
{
	struct body *body = scan->body;
	int rc = 0;

	if (!body->has_section) {
		struct point *point = add_point(scan, POINT_SECTION, insn);

		if (!point)
			return no_memory(scan);
		point->guard.length = 0;
		body->section = scan->point_count - 1;
		body->has_section = true;
	}
	scan->points[body->section].instructions++;
	scan->points[body->section].flops += insn_flops(insn);
	if (insn_is(insn, "bra"))
		rc = find_branch(scan, insn);
	else if (insn_is(insn, "ret") || insn_is(insn, "exit"))
		rc = find_exit(scan, insn);
	else if (insn_is(insn, "call"))
		rc = find_call(scan, insn);
	else
		rc = find_access(scan, insn);
	body->was_trap = insn_is(insn, "trap") && !insn->guard.length;
	body->is_over = !insn->guard.length && (is_jump(insn) || body->was_trap);
	if (is_jump(insn))
		body->has_section = false;
	return rc;
}

/* ---- statements */

/* [base], [base+offset], [base+-offset], [number]. Anything else in brackets leaves the operand empty. */
static void scan_address(struct scan *scan, struct operand *operand)
{
	const struct ptx_token *t = scan_token(scan);
	bool is_negative = false;
	struct operand found = { .is_address = true };

	ptx_lex_next(&scan->lex);
	if (t->kind == PTX_TOKEN_WORD) {
		found.base = view_of(t);
		ptx_lex_next(&scan->lex);
	}
	while (ptx_token_is(t, "+") || ptx_token_is(t, "-")) {
		is_negative ^= ptx_token_is(t, "-");
		ptx_lex_next(&scan->lex);
	}
	if (t->kind == PTX_TOKEN_INT) {
		found.offset = (int64_t)(is_negative ? 0 - t->bits : t->bits);
		ptx_lex_next(&scan->lex);
	}
	if (ptx_token_is(t, "]"))
		*operand = found;
}

/* One operand, up to the comma or semicolon after it. */
static int scan_operand(struct scan *scan, struct operand *operand)
{
	const struct ptx_token *t = scan_token(scan);
	unsigned depth = 0, tokens = 0;

	for (;; tokens++) {
		if (t->kind == PTX_TOKEN_END || t->kind == PTX_TOKEN_BAD)
			return scan_refuse(scan, t->line, "an instruction has no end");
		if (!depth && (ptx_token_is(t, ";") || ptx_token_is(t, ",")))
			return 0;
		if (depth && ptx_token_is(t, ";"))
			return scan_refuse(scan, t->line, "a bracket of an instruction is not closed");
		if (!tokens && t->kind == PTX_TOKEN_WORD)
			operand->base = view_of(t);
		else if (!tokens && t->kind == PTX_TOKEN_INT)
			*operand = (struct operand){ .is_number = true, .offset = (int64_t)t->bits };
		else if (!tokens && ptx_token_is(t, "[")) {
			scan_address(scan, operand);
			depth++;
			continue;
		} else if (tokens && !operand->is_address)
			*operand = (struct operand){ 0 };
		if (ptx_token_is(t, "(") || ptx_token_is(t, "{") || ptx_token_is(t, "["))
			depth++;
		else if (ptx_token_is(t, ")") || ptx_token_is(t, "}") || ptx_token_is(t, "]"))
			if (!depth--)
				return scan_refuse(scan, t->line, "a bracket of an instruction is not open");
		ptx_lex_next(&scan->lex);
	}
}

static int scan_operands(struct scan *scan, struct insn *insn)
{
	const struct ptx_token *t = scan_token(scan);

	while (!ptx_token_is(t, ";")) {
		struct operand operand = { 0 };
		int rc = scan_operand(scan, &operand);

		if (rc)
			return rc;
		if (insn->operand_count < OPERANDS_MAX)
			insn->operands[insn->operand_count++] = operand;
		if (ptx_token_is(t, ","))
			ptx_lex_next(&scan->lex);
	}
	ptx_lex_next(&scan->lex);
	return 0;
}

static int scan_guard(struct scan *scan, struct insn *insn)
{
	const struct ptx_token *t = scan_token(scan);

	if (!ptx_token_is(t, "@"))
		return 0;
	ptx_lex_next(&scan->lex);
	insn->is_guard_negated = ptx_token_is(t, "!");
	if (insn->is_guard_negated)
		ptx_lex_next(&scan->lex);
	if (t->kind != PTX_TOKEN_WORD || t->length > 128)
		return scan_refuse(scan, t->line, "a predicate expected after @");
	insn->guard = view_of(t);
	ptx_lex_next(&scan->lex);
	return 0;
}

static int scan_instruction(struct scan *scan)
{
	const struct ptx_token *t = scan_token(scan);
	struct insn insn = { .at = offset_of(scan), .line = t->line };
	int rc = scan_guard(scan, &insn);

	if (rc)
		return rc;
	if (t->kind != PTX_TOKEN_WORD)
		return scan_refuse(scan, t->line, "an instruction expected");
	insn.name = view_of(t);
	ptx_lex_next(&scan->lex);
	while (t->kind == PTX_TOKEN_DOT) {
		if (insn.suffix_count == SUFFIXES_MAX)
			return scan_refuse(scan, t->line, "an instruction has too many suffixes");
		insn.suffixes[insn.suffix_count++] = (struct view){ t->text + 1, t->length - 1 };
		ptx_lex_next(&scan->lex);
	}
	rc = scan_operands(scan, &insn);
	return rc ? rc : find_points(scan, &insn);
}

static int skip_directive(struct scan *scan)
{
	const struct ptx_token *t = scan_token(scan);
	uint32_t line = t->line;
	bool is_line = ptx_token_is(t, ".loc") || ptx_token_is(t, ".file");

	if (ptx_token_is(t, ".section") || ptx_token_is(t, ".entry") || ptx_token_is(t, ".func"))
		return scan_refuse(scan, line, "a directive that does not belong into a body");
	while (t->kind != PTX_TOKEN_END && t->kind != PTX_TOKEN_BAD) {
		if (is_line && t->line != line)
			return 0;
		if (!is_line && ptx_token_is(t, ";")) {
			ptx_lex_next(&scan->lex);
			return 0;
		}
		ptx_lex_next(&scan->lex);
	}
	return scan_refuse(scan, line, "a directive has no end");
}

static int scan_directive(struct scan *scan)
{
	if (!ptx_token_is(scan_token(scan), ".reg"))
		return skip_directive(scan);
	ptx_lex_next(&scan->lex);
	return scan_registers(scan);
}

static bool is_table(const struct ptx_token *t)
{
	return ptx_token_is(t, ".branchtargets") || ptx_token_is(t, ".calltargets") ||
	       ptx_token_is(t, ".callprototype");
}

static void mark_first(struct scan *scan, size_t at)
{
	if (!scan->body->has_first)
		scan->body->function->first = at;
	scan->body->has_first = true;
}

static int scan_statement(struct scan *scan)
{
	struct ptx_lexer before = scan->lex;
	const struct ptx_token *t = scan_token(scan);
	size_t at = offset_of(scan);

	if (t->kind == PTX_TOKEN_DOT)
		return scan_directive(scan);
	if (t->kind == PTX_TOKEN_WORD) {
		ptx_lex_next(&scan->lex);
		if (ptx_token_is(t, ":")) {
			ptx_lex_next(&scan->lex);
			if (is_table(t))
				return skip_directive(scan);
			mark_first(scan, at);
			return add_label(scan, view_of(&before.token));
		}
		scan->lex = before;
	}
	mark_first(scan, at);
	return scan_instruction(scan);
}

/* Threads that run past the last instruction end. */
static int scan_close(struct scan *scan, size_t at)
{
	struct body *body = scan->body;
	struct point *point;

	mark_first(scan, at);
	body->function->end = at + 1;
	if (!body->function->is_entry || body->is_over)
		return 0;
	point = add_point(scan, POINT_EXIT, NULL);
	if (!point)
		return no_memory(scan);
	point->at = at;
	return 0;
}

static int scan_scopes(struct scan *scan)
{
	const struct ptx_token *t = scan_token(scan);
	struct body *body = scan->body;
	int rc = 0;

	while (!rc) {
		size_t at = offset_of(scan);

		if (t->kind == PTX_TOKEN_END || t->kind == PTX_TOKEN_BAD)
			return scan_refuse(scan, t->line, "a body has no end");
		if (ptx_token_is(t, ";")) {
			ptx_lex_next(&scan->lex);
		} else if (ptx_token_is(t, "{")) {
			mark_first(scan, at);
			ptx_lex_next(&scan->lex);
			rc = enter_scope(scan);
		} else if (ptx_token_is(t, "}")) {
			ptx_lex_next(&scan->lex);
			if (!body->depth)
				return scan_close(scan, at);
			leave_scope(body);
		} else {
			rc = scan_statement(scan);
		}
	}
	return rc;
}

int scan_body(struct scan *scan, struct function *function)
{
	struct body *body = calloc(1, sizeof(*body));
	int rc;

	if (!body)
		return no_memory(scan);
	body->function = function;
	scan->body = body;
	rc = scan_scopes(scan);
	scan->body = NULL;
	free(body->labels);
	free(body->registers);
	free(body);
	return rc;
}
