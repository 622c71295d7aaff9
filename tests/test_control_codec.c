/* Requests and replies of the control socket. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/control.pb-c.h"
#include "proto/control_codec.h"

static unsigned char frame[CONTROL_REQUEST_MAX + 1];
static struct line why;

static void commands_are_found_by_name_and_number(void **state)
{
	(void)state;
	assert_int_equal(control_command_find("set"), COMMAND_SET);
	assert_int_equal(control_command_find("sets"), 0);
	assert_string_equal(control_command_name(COMMAND_HASH), "hash");
	assert_null(control_command_name(0));
	assert_null(control_command_name(UINT32_MAX));
	assert_true(control_command_changes(COMMAND_PAUSE));
	assert_false(control_command_changes(COMMAND_STATUS));
	assert_false(control_command_changes(COMMAND_VIEW));
	assert_true(control_command_changes(COMMAND_LEAVE));
	assert_true(control_command_changes(COMMAND_FORCE));
	assert_false(control_command_changes(99));
}

static void request_reads_back(void **state)
{
	(void)state;
	struct control_request request = {.command = COMMAND_SET, .setting = "sync.interval", .value = "20", .at_round = 30,
					  .dry_run = true, .change = UINT64_MAX}, got;
	size_t bytes;
	assert_int_equal(control_request_encode(&request, frame, sizeof(frame), &bytes), 0);
	assert_int_equal(control_request_decode(frame, bytes, &got, &why), 0);
	assert_int_equal(got.command, COMMAND_SET);
	assert_string_equal(got.setting, "sync.interval");
	assert_string_equal(got.value, "20");
	assert_int_equal(got.at_round, 30);
	assert_true(got.dry_run);
	assert_true(got.change == UINT64_MAX);
	assert_false(got.force);
	assert_int_equal(control_request_encode(&request, frame, bytes - 1, &bytes), EDIT_ERROR_FULL);
	memset(request.setting, 's', CONTROL_SETTING_MAX);
	memset(request.value, 'v', CONTROL_VALUE_MAX);
	assert_int_equal(control_request_encode(&request, frame, CONTROL_REQUEST_MAX, &bytes), 0);
	assert_int_equal(control_request_decode(frame, bytes, &got, &why), 0);
	assert_int_equal(strlen(got.setting), CONTROL_SETTING_MAX);
	assert_int_equal(strlen(got.value), CONTROL_VALUE_MAX);
}

static void forced_names_read_back(void **state)
{
	(void)state;
	struct control_request request = {.command = COMMAND_FORCE, .value = "node-a node-c", .force = true}, got;
	size_t bytes;
	assert_int_equal(control_request_encode(&request, frame, sizeof(frame), &bytes), 0);
	assert_int_equal(control_request_decode(frame, bytes, &got, &why), 0);
	assert_int_equal(got.command, COMMAND_FORCE);
	assert_string_equal(got.value, "node-a node-c");
	assert_true(got.force);
}

/* What the daemon says to a request of the generated type. */
static int decode(const Edit__Control__Request *request)
{
	struct control_request got = {.at_round = 4711};
	why.text[0] = 0;
	size_t bytes = edit__control__request__pack(request, frame);
	int error = control_request_decode(frame, bytes, &got, &why);
	if (error) {
		assert_int_equal(got.at_round, 4711);
		assert_true(why.text[0] != 0);
	}
	return error;
}

static void bad_requests_are_told(void **state)
{
	(void)state;
	Edit__Control__Request request = EDIT__CONTROL__REQUEST__INIT;
	request.version = CONTROL_VERSION;
	request.command = COMMAND_GET;
	assert_int_equal(decode(&request), 0);
	request.command = 99;
	assert_int_equal(decode(&request), EDIT_ERROR_UNKNOWN);
	assert_string_equal(why.text, "unknown command 99");
	request.version = 7;
	assert_int_equal(decode(&request), EDIT_ERROR_REFUSED);
	assert_string_equal(why.text, "control protocol version 7, this daemon speaks version 1");
	request.version = CONTROL_VERSION;
	request.command = COMMAND_SET;
	char longer[CONTROL_VALUE_MAX + 2] = {0};
	memset(longer, 'x', CONTROL_VALUE_MAX + 1);
	request.value = longer;
	assert_int_equal(decode(&request), EDIT_ERROR_RANGE);
	longer[CONTROL_VALUE_MAX] = 0;
	assert_int_equal(decode(&request), 0);
	request.setting = longer;
	assert_int_equal(decode(&request), EDIT_ERROR_RANGE);
	request.setting = (char *)"a\x1b[2J";
	assert_int_equal(decode(&request), EDIT_ERROR_MALFORMED);
	request.setting = (char *)"";
	request.at_round = UINT64_MAX;
	assert_int_equal(decode(&request), EDIT_ERROR_RANGE);
}

static void frames_that_are_no_requests_are_refused(void **state)
{
	(void)state;
	struct control_request got;
	assert_int_equal(control_request_decode("", 0, &got, &why), EDIT_ERROR_MALFORMED);
	assert_string_equal(why.text, "not a request");
	assert_int_equal(control_request_decode("GET / HTTP/1.1\r\n", 16, &got, &why), EDIT_ERROR_MALFORMED);
	assert_int_equal(control_request_decode(frame, CONTROL_REQUEST_MAX + 1, &got, &why), EDIT_ERROR_MALFORMED);
	assert_string_equal(why.text, "a request of 4097 bytes is too long, expected up to 4096");
	for (size_t i = 0; i + 1 < sizeof(frame); i += 2)
		memcpy(frame + i, "\x7a\x00", 2); /* two thousand unknown texts */
	assert_int_equal(control_request_decode(frame, CONTROL_REQUEST_MAX, &got, &why), EDIT_ERROR_MALFORMED);
}

static void reply_reads_back_and_is_one_block(void **state)
{
	(void)state;
	Edit__Control__Reply reply = EDIT__CONTROL__REPLY__INIT;
	Edit__Control__Layers layers = EDIT__CONTROL__LAYERS__INIT;
	Edit__Control__Layer layer = EDIT__CONTROL__LAYER__INIT, *list[1000];
	layer.name = (char *)"block 0";
	layer.size = 147712;
	layer.mean_norm = 0.25;
	for (size_t i = 0; i < 1000; i++)
		list[i] = &layer;
	layers.layers = list;
	layers.n_layers = 1000;
	reply.version = CONTROL_VERSION;
	reply.error = EDIT_ERROR_BUSY;
	reply.text = (char *)"caf\xc3\xa9";
	reply.body_case = EDIT__CONTROL__REPLY__BODY_LAYERS;
	reply.layers = &layers;
	size_t bytes = edit__control__reply__get_packed_size(&reply);
	unsigned char *packed = malloc(bytes);
	edit__control__reply__pack(&reply, packed);
	void *block;
	const Edit__Control__Reply *got;
	assert_int_equal(control_reply_decode(packed, bytes, &block, &got, &why), 0);
	assert_int_equal(got->error, EDIT_ERROR_BUSY);
	assert_string_equal(got->text, "caf\xc3\xa9");
	assert_int_equal(got->layers->n_layers, 1000);
	assert_string_equal(got->layers->layers[999]->name, "block 0");
	assert_int_equal(got->layers->layers[999]->size, 147712);
	free(block);
	for (size_t cut = 0; cut < 40; cut++)
		assert_int_equal(control_reply_decode(packed, bytes - 1 - cut, &block, &got, &why), EDIT_ERROR_MALFORMED);
	free(packed);
}

static void page_of_rounds_reads_back_and_a_cut_one_is_refused(void **state)
{
	(void)state;
	Edit__Control__Reply reply = EDIT__CONTROL__REPLY__INIT;
	Edit__Control__Trace trace = EDIT__CONTROL__TRACE__INIT;
	Edit__Control__TraceRound round = EDIT__CONTROL__TRACE_ROUND__INIT, *rounds[2] = {&round, &round};
	Edit__Control__TraceMember member = EDIT__CONTROL__TRACE_MEMBER__INIT, *members[1024];
	Edit__Control__TraceTimes times = EDIT__CONTROL__TRACE_TIMES__INIT, *layers[1] = {&times};
	uint32_t verdicts[4] = {0, 30, 0, 1};
	double settings[3] = {1, 0.85, 1e30};
	for (size_t i = 0; i < 1024; i++)
		members[i] = &member;
	member.lateness_us = 1234567;
	member.verdicts = verdicts;
	member.n_verdicts = 4;
	times.gather_us = 99;
	round.round = UINT64_C(1) << 52;
	round.settings = settings;
	round.n_settings = 3;
	round.members = members;
	round.n_members = 1024;
	round.layers = layers;
	round.n_layers = 1;
	trace.rounds = rounds;
	trace.n_rounds = 2;
	reply.version = CONTROL_VERSION;
	reply.body_case = EDIT__CONTROL__REPLY__BODY_TRACE;
	reply.trace = &trace;
	size_t bytes = edit__control__reply__get_packed_size(&reply);
	unsigned char *packed = malloc(bytes);
	edit__control__reply__pack(&reply, packed);
	void *block;
	const Edit__Control__Reply *got;
	assert_int_equal(control_reply_decode(packed, bytes, &block, &got, &why), 0);
	const Edit__Control__TraceRound *second = got->trace->rounds[1];
	assert_true(second->round == UINT64_C(1) << 52);
	assert_int_equal(second->n_members, 1024);
	assert_int_equal(second->members[1023]->verdicts[3], 1);
	assert_int_equal(second->members[1023]->lateness_us, 1234567);
	assert_int_equal(second->layers[0]->gather_us, 99);
	assert_true(second->settings[2] == 1e30);
	free(block);
	for (size_t cut = 1; cut < 40; cut++)
		assert_int_equal(control_reply_decode(packed, bytes - cut, &block, &got, &why), EDIT_ERROR_MALFORMED);
	/* A member whose numbers are all zero takes fewest bytes for the memory it needs. */
	memset(verdicts, 0, sizeof(verdicts));
	member.lateness_us = 0;
	bytes = edit__control__reply__pack(&reply, packed);
	assert_int_equal(control_reply_decode(packed, bytes, &block, &got, &why), 0);
	free(block);
	free(packed);
}

static void view_of_1024_members_reads_back_and_a_cut_one_is_refused(void **state)
{
	(void)state;
	Edit__Control__Reply reply = EDIT__CONTROL__REPLY__INIT;
	Edit__Control__View view = EDIT__CONTROL__VIEW__INIT;
	Edit__Control__ViewMember member = EDIT__CONTROL__VIEW_MEMBER__INIT, *members[1024];
	char *joiners[2] = {(char *)"e", (char *)"f"};
	for (size_t i = 0; i < 1024; i++)
		members[i] = &member;
	member.name = (char *)"a";
	member.holder = true;
	view.number = UINT64_C(1) << 40;
	view.members = members;
	view.n_members = 1024;
	view.joiners = joiners;
	view.n_joiners = 2;
	view.contradictions = 3;
	reply.version = CONTROL_VERSION;
	reply.body_case = EDIT__CONTROL__REPLY__BODY_VIEW;
	reply.view = &view;
	size_t bytes = edit__control__reply__get_packed_size(&reply);
	unsigned char *packed = malloc(bytes);
	edit__control__reply__pack(&reply, packed);
	void *block;
	const Edit__Control__Reply *got;
	assert_int_equal(control_reply_decode(packed, bytes, &block, &got, &why), 0);
	assert_true(got->view->number == UINT64_C(1) << 40);
	assert_int_equal(got->view->n_members, 1024);
	assert_string_equal(got->view->members[1023]->name, "a");
	assert_true(got->view->members[1023]->holder);
	assert_string_equal(got->view->joiners[1], "f");
	assert_int_equal(got->view->contradictions, 3);
	free(block);
	for (size_t cut = 1; cut < 40; cut++)
		assert_int_equal(control_reply_decode(packed, bytes - cut, &block, &got, &why), EDIT_ERROR_MALFORMED);
	free(packed);
}

static void replies_of_another_version_or_with_escapes_are_refused(void **state)
{
	(void)state;
	Edit__Control__Reply reply = EDIT__CONTROL__REPLY__INIT;
	void *block;
	const Edit__Control__Reply *got;
	reply.version = CONTROL_VERSION + 1;
	size_t bytes = edit__control__reply__pack(&reply, frame);
	assert_int_equal(control_reply_decode(frame, bytes, &block, &got, &why), EDIT_ERROR_REFUSED);
	reply.version = CONTROL_VERSION;
	reply.text = (char *)"\x1b]0;title\x07";
	bytes = edit__control__reply__pack(&reply, frame);
	assert_int_equal(control_reply_decode(frame, bytes, &block, &got, &why), EDIT_ERROR_MALFORMED);
	assert_int_equal(control_reply_decode("", 0, &block, &got, &why), EDIT_ERROR_MALFORMED);
	assert_int_equal(control_reply_decode(frame, (size_t)CONTROL_REPLY_MAX + 1, &block, &got, &why), EDIT_ERROR_MALFORMED);
}

static void a_million_peers_in_a_reply_are_refused(void **state)
{
	(void)state;
	/* Field 11 (peers) holding a million empty peers: each would cost far more memory than bytes. */
	size_t count = 1000000, body = 2 * count, bytes = body + 7, at = 0;
	unsigned char *packed = malloc(bytes);
	memcpy(packed, "\x08\x01\x5a", 3);
	at = 3;
	packed[at++] = (unsigned char)(0x80 | (body & 0x7f));
	packed[at++] = (unsigned char)(0x80 | (body >> 7 & 0x7f));
	packed[at++] = (unsigned char)(0x80 | (body >> 14 & 0x7f));
	packed[at++] = (unsigned char)(body >> 21);
	for (; at < bytes; at += 2)
		memcpy(packed + at, "\x0a\x00", 2);
	void *block;
	const Edit__Control__Reply *got;
	assert_int_equal(control_reply_decode(packed, bytes, &block, &got, &why), EDIT_ERROR_MALFORMED);
	free(packed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commands_are_found_by_name_and_number),
		cmocka_unit_test(request_reads_back),
		cmocka_unit_test(forced_names_read_back),
		cmocka_unit_test(bad_requests_are_told),
		cmocka_unit_test(frames_that_are_no_requests_are_refused),
		cmocka_unit_test(reply_reads_back_and_is_one_block),
		cmocka_unit_test(page_of_rounds_reads_back_and_a_cut_one_is_refused),
		cmocka_unit_test(view_of_1024_members_reads_back_and_a_cut_one_is_refused),
		cmocka_unit_test(replies_of_another_version_or_with_escapes_are_refused),
		cmocka_unit_test(a_million_peers_in_a_reply_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
