/* Keys, the selected row, and the visible part of the table. */
#include <string.h>

#include "cli/report.h"
#include "cli/top.h"

static const struct {
	const char *bytes; /* after ESC */
	enum top_key key;
} sequences[] = {
	{ "[A", TOP_KEY_UP },	 { "OA", TOP_KEY_UP },	     { "[B", TOP_KEY_DOWN },
	{ "OB", TOP_KEY_DOWN },	 { "[5~", TOP_KEY_PAGE_UP }, { "[6~", TOP_KEY_PAGE_DOWN },
	{ "[H", TOP_KEY_HOME },	 { "OH", TOP_KEY_HOME },     { "[1~", TOP_KEY_HOME },
	{ "[7~", TOP_KEY_HOME }, { "[F", TOP_KEY_END },	     { "OF", TOP_KEY_END },
	{ "[4~", TOP_KEY_END },	 { "[8~", TOP_KEY_END },
};

static enum top_key letter(char byte)
{
	switch (byte) {
	case 'k':
		return TOP_KEY_UP;
	case 'j':
		return TOP_KEY_DOWN;
	case 'b':
		return TOP_KEY_PAGE_UP;
	case ' ':
		return TOP_KEY_PAGE_DOWN;
	case 'g':
		return TOP_KEY_HOME;
	case 'G':
		return TOP_KEY_END;
	case 'h':
	case '?':
		return TOP_KEY_HELP;
	case 'q':
	case 'Q':
		return TOP_KEY_QUIT;
	default:
		return TOP_KEY_NONE;
	}
}

/* A key sequence: ESC, '[' or 'O', digits and semicolons, and one final character. */
static bool is_complete(const char *sequence, unsigned length)
{
	char last = sequence[length - 1];

	return length > 2 && !(last >= '0' && last <= '9') && last != ';';
}

static enum top_key sequence_key(const char *sequence)
{
	for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++)
		if (!strcmp(sequence + 1, sequences[i].bytes))
			return sequences[i].key;
	return TOP_KEY_NONE;
}

enum top_key top_view_byte(struct top_view *view, char byte)
{
	if (byte == '\033') {
		view->sequence[0] = byte;
		view->length = 1;
		return TOP_KEY_NONE;
	}
	/* A single ESC does not consume the next key. */
	if (!view->length || (view->length == 1 && byte != '[' && byte != 'O')) {
		view->length = 0;
		return letter(byte);
	}
	view->sequence[view->length++] = byte;
	view->sequence[view->length] = 0;
	if (!is_complete(view->sequence, view->length)) {
		if (view->length + 1 == sizeof(view->sequence))
			view->length = 0; /* longer than every known sequence */
		return TOP_KEY_NONE;
	}
	view->length = 0;
	return sequence_key(view->sequence);
}

/* `at` after a step of `by` rows. */
static size_t step(const struct top_view *view, size_t by, bool is_down)
{
	if (!is_down)
		return view->at > by ? view->at - by : 0;
	return view->count - view->at > by ? view->at + by : view->count - 1;
}

bool top_view_key(struct top_view *view, enum top_key key)
{
	size_t page = view->page ? view->page : 1;

	if (key == TOP_KEY_QUIT)
		return false;
	if (key == TOP_KEY_NONE)
		return true;
	if (view->is_help || key == TOP_KEY_HELP) {
		view->is_help = !view->is_help;
		return true;
	}
	if (!view->count)
		return true;
	view->is_moved = true;
	if (key == TOP_KEY_HOME)
		view->at = 0;
	else if (key == TOP_KEY_END)
		view->at = view->count - 1;
	else if (!view->selected[0])
		view->at = view->first; /* the first key selects the top row */
	else if (key == TOP_KEY_UP || key == TOP_KEY_DOWN)
		view->at = step(view, 1, key == TOP_KEY_DOWN);
	else
		view->at = step(view, page, key == TOP_KEY_PAGE_DOWN);
	return true;
}

static size_t row_of(const char *name, const struct top_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(report_text(rows[i].vgpu, "name", ""), name))
			return i;
	return count;
}

void top_view_settle(struct top_view *view, const struct top_row *rows, size_t count, size_t page)
{
	size_t found = view->is_moved ? count : row_of(view->selected, rows, count);
	bool is_selected = view->is_moved || view->selected[0];

	view->is_moved = false;
	view->count = count;
	view->page = page;
	if (found < count)
		view->at = found;
	else if (view->at >= count) /* the vGPU is gone: select the one now in its row */
		view->at = count ? count - 1 : 0;
	view->selected[0] = 0;
	if (is_selected && count)
		snprintf(view->selected, sizeof(view->selected), "%s",
			 report_text(rows[view->at].vgpu, "name", ""));
	else
		view->at = view->first = 0;
	if (view->at < view->first)
		view->first = view->at;
	if (page && view->at >= view->first + page)
		view->first = view->at - page + 1;
	if (view->first + page > count)
		view->first = count > page ? count - page : 0;
}
