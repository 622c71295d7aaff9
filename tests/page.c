/* What is written to a stream, to be looked at. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/page.h"

FILE *page_begin(struct page *page)
{
	page->out = open_memstream(&page->text, &page->size_bytes);
	assert_non_null(page->out);
	return page->out;
}

void page_is(struct page *page, const char *expected)
{
	fclose(page->out);
	assert_string_equal(page->text, expected);
	free(page->text);
}
