/* What belfry top shows: columns by the width of the terminal, rows by its height, and a selection that follows its vGPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/top.h"

enum { LINES_MAX = 512 };

/* A frame as lines. */
struct frame {
	char *text;
	char *lines[LINES_MAX];
	size_t count;
};

static void frame_draw(struct frame *frame, struct json_object *before, struct json_object *now,
		       struct top_view *view)
{
	size_t bytes = 0;
	FILE *to = open_memstream(&frame->text, &bytes);

	assert_non_null(to);
	top_draw(to, before, now, view);
	assert_int_equal(fclose(to), 0);
	frame->count = 0;
	for (char *at = frame->text; *at;) {
		char *end = strchr(at, '\n');

		assert_non_null(end);
		*end = 0;
		assert_true(frame->count < LINES_MAX);
		frame->lines[frame->count++] = at;
		at = end + 1;
	}
}

static void frame_free(struct frame *frame)
{
	free(frame->text);
}

static bool has(const struct frame *frame, const char *text)
{
	for (size_t i = 0; i < frame->count; i++)
		if (strstr(frame->lines[i], text))
			return true;
	return false;
}

static void fits(const struct frame *frame, const struct top_view *view)
{
	assert_true(!view->rows || frame->count <= view->rows);
	for (size_t i = 0; i < frame->count; i++)
		assert_true(strlen(frame->lines[i]) <= view->columns);
}

static void add_vgpu(struct json_object *vgpus, const char *name, double share)
{
	char text[1024];
	struct json_object *vgpu;

	snprintf(
		text, sizeof(text),
		"{\"name\": \"%s\", \"gpu\": \"soft:0\", \"class\": \"throughput\", \"state\": \"running\","
		" \"time\": {\"request\": 0.4, \"limit\": 0.8, \"share\": %f, \"gpu_ns\": 0},"
		" \"mem\": {\"used\": 1073000000, \"limit\": 2147483648},"
		" \"latency\": {\"samples\": 9, \"p99_us\": 123456}, \"waits\": [{\"for\": \"other\", \"ns\": 5}]}",
		name, share);
	vgpu = json_tokener_parse(text);
	assert_non_null(vgpu);
	json_object_array_add(vgpus, vgpu);
}

static void set_domain(struct json_object *now, size_t at, const char *domain)
{
	json_object_object_add(json_object_array_get_idx(json_object_object_get(now, "vgpus"), at), "domain",
			       json_object_new_string(domain));
}

static struct json_object *report(int gpus)
{
	struct json_object *top = json_tokener_parse("{\"gpus\": [], \"vgpus\": []}");

	for (int i = 0; i < gpus; i++) {
		char text[512];

		snprintf(text, sizeof(text),
			 "{\"gpu\": \"soft:%d\", \"now_ns\": 1000, \"uptime_ns\": 1000, \"busy_ns\": 500,"
			 " \"sharing\": \"tokens\", \"request\": 0.7, \"handovers\": 3,"
			 " \"mem\": {\"used\": 1073000000, \"total\": 150754820096}}",
			 i);
		json_object_array_add(json_object_object_get(top, "gpus"), json_tokener_parse(text));
	}
	return top;
}

/* `count` vGPUs v000, v001, ... */
static struct json_object *many(int count)
{
	struct json_object *top = report(1);

	for (int i = 0; i < count; i++) {
		char name[16];

		snprintf(name, sizeof(name), "v%03d", i);
		add_vgpu(json_object_object_get(top, "vgpus"), name, 0.1);
	}
	return top;
}

static struct top_view view_of(unsigned rows, unsigned columns)
{
	return (struct top_view){ .rows = rows, .columns = columns };
}

static void type(struct top_view *view, const char *bytes)
{
	for (; *bytes; bytes++)
		assert_true(top_view_key(view, top_view_byte(view, *bytes)));
}

static void redraw(struct top_view *view, struct json_object *now)
{
	struct frame frame;

	frame_draw(&frame, NULL, now, view);
	fits(&frame, view);
	frame_free(&frame);
}

static void every_size_of_terminal_is_kept_to(void **state)
{
	struct json_object *now = report(3);

	(void)state;
	add_vgpu(json_object_object_get(now, "vgpus"), "a", 1);
	add_vgpu(json_object_object_get(now, "vgpus"),
		 "a-name-of-the-greatest-length-which-is-sixty-three-characters00", 0.5);
	for (unsigned columns = 1; columns <= 250; columns++)
		for (unsigned rows = 0; rows <= 30; rows++) {
			struct top_view view = view_of(rows, columns);

			redraw(&view, now);
			type(&view, "G");
			redraw(&view, now);
			type(&view, "h");
			redraw(&view, now);
		}
	json_object_put(now);
}

static void eighty_columns_hold_what_matters_most(void **state)
{
	struct json_object *now = many(3);
	struct top_view view = view_of(24, 80);
	struct frame frame;

	(void)state;
	frame_draw(&frame, NULL, now, &view);
	for (const char *const *title = (const char *const[]){ "NAME", "TIME", "SHARE", "USED", "LIMIT",
							       "STATE", "WAITS FOR", "[#", NULL };
	     *title; title++)
		assert_true(has(&frame, *title));
	assert_false(has(&frame, "CLASS"));
	assert_true(has(&frame, "vGPUs 1 to 3 of 3"));
	frame_free(&frame);
	view = view_of(24, 160);
	frame_draw(&frame, NULL, now, &view);
	for (const char *const *title = (const char *const[]){ "GPU ", "CLASS", "P99", "123.46 ms", NULL };
	     *title; title++)
		assert_true(has(&frame, *title));
	frame_free(&frame);
	json_object_put(now);
}

static void columns_go_one_by_one_as_it_gets_narrow(void **state)
{
	static const enum top_column order[] = { TOP_CLASS,  TOP_P99,	TOP_GPU,  TOP_BAR,
						 TOP_DOMAIN, TOP_LIMIT, TOP_TIME, TOP_USED,
						 TOP_WAITS,  TOP_STATE, TOP_SHARE };
	struct json_object *now = report(1);
	struct top_layout layout;
	struct top_row row = { .share = 0.5 };
	size_t gone = 0;

	(void)state;
	add_vgpu(json_object_object_get(now, "vgpus"), "a-name", 0.5);
	row.vgpu = json_object_array_get_idx(json_object_object_get(now, "vgpus"), 0);
	set_domain(now, 0, "pool");
	for (unsigned columns = 200; columns; columns--) {
		top_layout(&layout, &row, 1, columns);
		assert_int_not_equal(layout.width[TOP_NAME], 0);
		while (gone < sizeof(order) / sizeof(order[0]) && !layout.width[order[gone]])
			gone++;
		for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
			assert_int_equal(!layout.width[order[i]], i < gone);
	}
	assert_int_equal(gone, sizeof(order) / sizeof(order[0]));
	json_object_put(now);
}

static void domains_are_shown_if_there_are_any(void **state)
{
	struct json_object *now = many(3);
	struct top_view view = view_of(24, 80);
	struct frame frame;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		set_domain(now, i, "");
	frame_draw(&frame, NULL, now, &view);
	assert_false(has(&frame, "DOMAIN"));
	assert_true(has(&frame, "[#"));
	frame_free(&frame);
	set_domain(now, 1, "inference");
	frame_draw(&frame, NULL, now, &view);
	fits(&frame, &view);
	for (const char *const *text = (const char *const[]){ "DOMAIN", "inference", "TIME", "SHARE", "USED",
							      "LIMIT", "STATE", "WAITS FOR", NULL };
	     *text; text++)
		assert_true(has(&frame, *text));
	frame_free(&frame);
	json_object_put(now);
}

static void a_wide_terminal_cuts_no_name(void **state)
{
	static const char name[] = "a-name-of-the-greatest-length-which-is-sixty-three-characters00";
	struct json_object *now = report(1);
	struct top_view narrow = view_of(24, 80), wide = view_of(24, 220);
	struct frame frame;

	(void)state;
	add_vgpu(json_object_object_get(now, "vgpus"), name, 0.5);
	frame_draw(&frame, NULL, now, &narrow);
	assert_false(has(&frame, name));
	assert_true(has(&frame, "a-name-of-the-g"));
	assert_true(has(&frame, "~ "));
	frame_free(&frame);
	frame_draw(&frame, NULL, now, &wide);
	assert_true(has(&frame, name));
	frame_free(&frame);
	json_object_put(now);
}

static void keys_move_the_selection_and_the_page(void **state)
{
	struct json_object *now = many(100);
	struct top_view view = view_of(24, 80);
	struct frame frame;

	(void)state;
	redraw(&view, now);
	assert_string_equal(view.selected, "");
	assert_int_equal(view.page, 24 - 4); /* a GPU, an empty line, the titles, the keys */
	type(&view, "\033[B");
	redraw(&view, now);
	assert_string_equal(view.selected, "v000");
	type(&view, "\033OBj");
	redraw(&view, now);
	assert_string_equal(view.selected, "v002");
	type(&view, "\033[6~");
	redraw(&view, now);
	assert_string_equal(view.selected, "v022");
	assert_int_equal(view.first, 3);
	type(&view, "\033[F");
	frame_draw(&frame, NULL, now, &view);
	assert_string_equal(view.selected, "v099");
	assert_true(has(&frame, "vGPUs 81 to 100 of 100"));
	assert_int_equal(view.selected_line, 22);
	assert_memory_equal(frame.lines[22], "v099", 4);
	frame_free(&frame);
	type(&view, "jj\033[5~k");
	redraw(&view, now);
	assert_string_equal(view.selected, "v078");
	type(&view, "\033[1~kk");
	redraw(&view, now);
	assert_string_equal(view.selected, "v000");
	assert_false(top_view_key(&view, top_view_byte(&view, 'q')));
	json_object_put(now);
}

static void the_selection_follows_its_vgpu(void **state)
{
	struct json_object *now = many(60), *vgpus = json_object_object_get(now, "vgpus");
	struct top_view view = view_of(24, 80);
	struct frame frame;

	(void)state;
	redraw(&view, now);
	type(&view, "\033[H");
	redraw(&view, now);
	/* It is the first now. All others get a larger share, and it is the last. */
	for (size_t i = 1; i < 60; i++)
		json_object_object_add(json_object_object_get(json_object_array_get_idx(vgpus, i), "time"),
				       "share", json_object_new_double(0.9));
	frame_draw(&frame, NULL, now, &view);
	assert_string_equal(view.selected, "v000");
	assert_int_equal(view.at, 59);
	assert_memory_equal(frame.lines[view.selected_line], "v000", 4);
	frame_free(&frame);
	/* It is removed: the selection stays near where it was. */
	json_object_array_del_idx(vgpus, 0, 1);
	redraw(&view, now);
	assert_string_equal(view.selected, "v059");
	/* A lower screen keeps it in sight. */
	type(&view, "\033[Hj");
	redraw(&view, now);
	view.rows = 7;
	frame_draw(&frame, NULL, now, &view);
	assert_string_equal(view.selected, "v002");
	assert_memory_equal(frame.lines[view.selected_line], "v002", 4);
	frame_free(&frame);
	/* Nothing is left, and then something again. */
	json_object_array_del_idx(vgpus, 0, 59);
	redraw(&view, now);
	type(&view, "j\033[6~");
	redraw(&view, now);
	assert_string_equal(view.selected, "");
	add_vgpu(vgpus, "new", 0);
	redraw(&view, now);
	type(&view, "j");
	redraw(&view, now);
	assert_string_equal(view.selected, "new");
	json_object_put(now);
}

static void bytes_that_are_no_key_do_nothing(void **state)
{
	struct json_object *now = many(5);
	struct top_view view = view_of(24, 80);

	(void)state;
	redraw(&view, now);
	type(&view, "\033[200;1;30000;40Mxyz\033[3~\033[Z\033\033[C\001\377");
	redraw(&view, now);
	assert_string_equal(view.selected, "");
	type(&view, "\033j"); /* an ESC by itself */
	redraw(&view, now);
	assert_string_equal(view.selected, "v000");
	json_object_put(now);
}

static void help_is_shown_until_the_next_key(void **state)
{
	struct json_object *now = many(5);
	struct top_view view = view_of(24, 80);
	struct frame frame;

	(void)state;
	type(&view, "h");
	frame_draw(&frame, NULL, now, &view);
	assert_true(has(&frame, "page up"));
	assert_false(has(&frame, "v000"));
	frame_free(&frame);
	type(&view, "j");
	frame_draw(&frame, NULL, now, &view);
	assert_true(has(&frame, "v000"));
	frame_free(&frame);
	json_object_put(now);
}

static void many_gpus_leave_room_for_vgpus(void **state)
{
	struct json_object *now = report(40);
	struct top_view view = view_of(24, 80);
	struct frame frame;

	(void)state;
	add_vgpu(json_object_object_get(now, "vgpus"), "only", 0.25);
	frame_draw(&frame, NULL, now, &view);
	fits(&frame, &view);
	assert_true(has(&frame, "and 33 more GPUs"));
	assert_true(has(&frame, "only"));
	frame_free(&frame);
	view = view_of(0, 132); /* plain text: all of it */
	frame_draw(&frame, NULL, now, &view);
	/* Without a report before it, from the shares of the last window. */
	assert_true(has(&frame, "GPU soft:0: busy 25.0%"));
	assert_true(has(&frame, "GPU soft:39: busy 0.0%, sharing tokens, requested 70%, memory"));
	assert_false(has(&frame, "quit"));
	frame_free(&frame);
	json_object_put(now);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_size_of_terminal_is_kept_to),
		cmocka_unit_test(eighty_columns_hold_what_matters_most),
		cmocka_unit_test(columns_go_one_by_one_as_it_gets_narrow),
		cmocka_unit_test(domains_are_shown_if_there_are_any),
		cmocka_unit_test(a_wide_terminal_cuts_no_name),
		cmocka_unit_test(keys_move_the_selection_and_the_page),
		cmocka_unit_test(the_selection_follows_its_vgpu),
		cmocka_unit_test(bytes_that_are_no_key_do_nothing),
		cmocka_unit_test(help_is_shown_until_the_next_key),
		cmocka_unit_test(many_gpus_leave_room_for_vgpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
