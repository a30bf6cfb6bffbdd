/* base/text: what is left of text of somebody else's making. */
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void assert_becomes(const char *text, const char *wanted)
{
	char copy[64];

	snprintf(copy, sizeof(copy), "%s", text);
	assert_string_equal(bf_plain(copy), wanted);
}

static void text_stays_as_it_is(void **state)
{
	(void)state;
	assert_becomes("", "");
	assert_becomes("two lines\n\tand a tab", "two lines\n\tand a tab");
	assert_becomes("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x94\x94", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x94\x94");
	assert_becomes("\xc2\xa0", "\xc2\xa0");
	assert_becomes("\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf");
}

static void bytes_that_are_no_text_become_question_marks(void **state)
{
	(void)state;
	assert_becomes("a\xff"
		       "b",
		       "a?b");
	assert_becomes("\x80\xbf", "??");
	assert_becomes("cut off \xe2\x82", "cut off ??");
	assert_becomes("\xe2"
		       "abc",
		       "?abc");
	assert_becomes("\xc0\xaf", "??");		 /* a slash in two bytes */
	assert_becomes("\xe0\x80\xaf", "???");		 /* and in three */
	assert_becomes("\xed\xa0\x80", "???");		 /* half a character */
	assert_becomes("\xf4\x90\x80\x80", "????");	 /* past the last */
	assert_becomes("\xf8\x88\x80\x80\x80", "?????"); /* and of more bytes than there may be */
}

static void what_a_terminal_would_obey_becomes_question_marks(void **state)
{
	(void)state;
	assert_becomes("\x1b[2J\r\x7f\x01", "?[2J???");
	assert_becomes("\xc2\x9b"
		       "2J",
		       "??2J");
}

static void a_line_ends_and_can_be_printed(void **state)
{
	(void)state;
	assert_true(bf_is_line("", 1));
	assert_true(bf_is_line("a b~", 5));
	assert_false(bf_is_line("a b~", 4));
	assert_false(bf_is_line("a\nb", 8));
	assert_false(bf_is_line("\x1b[2J", 8));
	assert_false(bf_is_line("\xc3\xa4", 8));
	assert_false(bf_is_line("\x7f", 8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_stays_as_it_is),
		cmocka_unit_test(bytes_that_are_no_text_become_question_marks),
		cmocka_unit_test(what_a_terminal_would_obey_becomes_question_marks),
		cmocka_unit_test(a_line_ends_and_can_be_printed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
