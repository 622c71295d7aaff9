#ifndef EDIT_TESTS_PAGE_H
#define EDIT_TESTS_PAGE_H

/* What a test has written to a stream, to be looked at. */

#include <stdio.h>

/* Between page_begin and page_is. */
struct page {
	char *text;
	size_t size_bytes;
	FILE *out;
};

/* The stream to write to; the test fails if there is none. */
FILE *page_begin(struct page *page);
/* Ends it: all of the text is as expected, and is freed. */
void page_is(struct page *page, const char *expected);

#endif
