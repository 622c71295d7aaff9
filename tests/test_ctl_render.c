/* What editctl shows: numbers with units, tables, JSON, and the answers of a daemon drawn for people. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/json.h"
#include "ctl/render.h"
#include "tests/page.h"
#include "ctl/table.h"
#include "ctl/unit.h"

/* ---- Units ---- */

static void units_change_where_a_fourth_figure_would_come(void **state)
{
	(void)state;
	assert_string_equal(unit_time(0).text, "0 us");
	assert_string_equal(unit_time(999).text, "999 us");
	assert_string_equal(unit_time(1000).text, "1.00 ms");
	assert_string_equal(unit_time(350000).text, "350 ms");
	assert_string_equal(unit_time(999499).text, "999 ms");
	assert_string_equal(unit_time(999500).text, "1.00 s");
	assert_string_equal(unit_time(59999999).text, "60.0 s");
	assert_string_equal(unit_time(200000000).text, "3 min 20 s");
	assert_string_equal(unit_time(UINT64_C(7500000000)).text, "2 h 5 min");
	assert_string_equal(unit_time(UINT64_C(273600000000)).text, "3 d 4 h");
	assert_string_equal(unit_time(UINT64_MAX).text, "213503982 d 8 h");
	assert_string_equal(unit_bytes(999).text, "999 B");
	assert_string_equal(unit_bytes(1234567).text, "1.23 MB");
	assert_string_equal(unit_bytes(999499).text, "999 kB");
	assert_string_equal(unit_bytes(999500).text, "1.00 MB");
	assert_string_equal(unit_bytes(9996).text, "10.0 kB");
	assert_string_equal(unit_bytes(UINT64_MAX).text, "18.4 EB");
	assert_string_equal(unit_count(99999).text, "99999");
	assert_string_equal(unit_count(100000).text, "100 k");
	assert_string_equal(unit_count(UINT64_MAX).text, "18.4 E");
}

static void units_tell_what_is_not_a_number(void **state)
{
	(void)state;
	assert_string_equal(unit_real(NAN).text, "nan");
	assert_string_equal(unit_real(-NAN).text, "nan");
	assert_string_equal(unit_real(HUGE_VAL).text, "inf");
	assert_string_equal(unit_real(-HUGE_VAL).text, "-inf");
	assert_string_equal(unit_real(2.41234).text, "2.412");
	assert_string_equal(unit_rate(NAN).text, "-");
	assert_string_equal(unit_rate(HUGE_VAL).text, "-");
	assert_string_equal(unit_rate(-1).text, "-");
	assert_string_equal(unit_rate(12.34).text, "12.3");
	assert_string_equal(unit_rate(12345.6).text, "12346");
}

/* ---- Tables ---- */

static char *printed(const struct table *table, bool colour)
{
	char *text = NULL;
	size_t size_bytes;
	FILE *out = open_memstream(&text, &size_bytes);
	assert_non_null(out);
	table_print(table, out, colour);
	fclose(out);
	return text;
}

static void table_aligns_columns_and_ends_lines_without_blanks(void **state)
{
	static const char *const titles[] = {"NAME", "N", "WHAT"};
	struct table *table = table_new("lrl", titles);
	const char *const cells[] = {"a", "1", "", "longer", "1000", "x", "", "", ""};
	(void)state;
	for (size_t i = 0; i < 9; i++)
		table_cell(table, TONE_PLAIN, cells[i]);
	char *text = printed(table, false);
	assert_string_equal(text, "NAME       N  WHAT\n"
				  "a          1\n"
				  "longer  1000  x\n"
				  "\n");
	free(text);
	table_free(table);
}

static void table_counts_characters_not_bytes(void **state)
{
	struct table *table = table_new("ll", NULL);
	(void)state;
	table_cell(table, TONE_PLAIN, "\xc3\xa4\xc3\xb6");
	table_cell(table, TONE_PLAIN, "x");
	table_cell(table, TONE_PLAIN, "abc");
	table_cell(table, TONE_PLAIN, "y");
	char *text = printed(table, false);
	assert_string_equal(text, "\xc3\xa4\xc3\xb6   x\nabc  y\n");
	free(text);
	table_free(table);
}

static void table_disarms_control_characters_and_colours_only_if_asked(void **state)
{
	struct table *table = table_new("l", NULL);
	(void)state;
	table_cell(table, TONE_BAD, "a\033[2Jb\n");
	char *text = printed(table, false);
	assert_string_equal(text, "a?[2Jb?\n");
	free(text);
	text = printed(table, true);
	assert_string_equal(text, "\033[1;31ma?[2Jb?\033[0m\n");
	free(text);
	table_free(table);
}

static void table_leaves_out_a_row_that_is_not_full(void **state)
{
	struct table *table = table_new("ll", NULL);
	(void)state;
	table_cell(table, TONE_PLAIN, "a");
	char *text = printed(table, false);
	assert_string_equal(text, "");
	free(text);
	table_free(table);
}

/* ---- JSON ---- */

static void assert_json(json_t *value, const char *expected)
{
	char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	assert_non_null(text);
	assert_string_equal(text, expected);
	free(text);
	json_decref(value);
}

static void json_writes_numbers_that_are_not_finite_as_strings(void **state)
{
	(void)state;
	assert_json(json_number(NAN), "\"nan\"");
	assert_json(json_number(HUGE_VAL), "\"inf\"");
	assert_json(json_number(-HUGE_VAL), "\"-inf\"");
	assert_json(json_number(0.5), "0.5");
}

static void json_replaces_bytes_that_are_not_utf8(void **state)
{
	(void)state;
	assert_json(json_text("a\xff\"b"), "\"a?\\\"b\"");
}

static void json_message_holds_every_kind_of_field(void **state)
{
	Edit__Control__MemberHash member = EDIT__CONTROL__MEMBER_HASH__INIT;
	Edit__Control__MemberHash *members[] = {&member};
	Edit__Control__LayerHash layer = EDIT__CONTROL__LAYER_HASH__INIT;
	Edit__Control__LayerHash *layers[] = {&layer};
	Edit__Control__Hashes hashes = EDIT__CONTROL__HASHES__INIT;
	Edit__Control__Reply reply = EDIT__CONTROL__REPLY__INIT;
	(void)state;
	member.name = (char *)"a";
	member.hash = UINT64_C(0x00ab000000000001);
	member.round = UINT64_MAX;
	layer.layer = (char *)"block 0";
	layer.n_members = 1;
	layer.members = members;
	hashes.equal = true;
	hashes.round = 7;
	hashes.n_layers = 1;
	hashes.layers = layers;
	reply.body_case = EDIT__CONTROL__REPLY__BODY_HASHES;
	reply.hashes = &hashes;
	assert_json(json_reply("hash", &reply),
		    "{\"version\":1,\"command\":\"hash\",\"equal\":true,\"round\":7,\"layers\":[{\"layer\":\"block 0\","
		    "\"round\":0,\"equal\":false,\"members\":[{\"name\":\"a\",\"hash\":\"00ab000000000001\","
		    "\"round\":9223372036854775807}]}]}");
}

static void json_keeps_its_own_version_beside_that_of_the_daemon(void **state)
{
	Edit__Control__Status status = EDIT__CONTROL__STATUS__INIT;
	Edit__Control__Reply reply = EDIT__CONTROL__REPLY__INIT;
	(void)state;
	status.version = (char *)"0.1.0";
	status.loss = NAN;
	reply.body_case = EDIT__CONTROL__REPLY__BODY_STATUS;
	reply.status = &status;
	json_t *object = json_reply("status", &reply);
	assert_int_equal(json_integer_value(json_object_get(object, "version")), 1);
	assert_string_equal(json_string_value(json_object_get(object, "daemon_version")), "0.1.0");
	assert_string_equal(json_string_value(json_object_get(object, "loss")), "nan");
	json_decref(object);
}

/* ---- Rendering ---- */

static void penalties_mark_what_is_left_out(void **state)
{
	Edit__Control__Penalty good = EDIT__CONTROL__PENALTY__INIT, bad = EDIT__CONTROL__PENALTY__INIT;
	Edit__Control__Penalty *rows[] = {&good, &bad};
	Edit__Control__PenaltyPeer peer = EDIT__CONTROL__PENALTY_PEER__INIT;
	Edit__Control__PenaltyPeer *peers[] = {&peer};
	Edit__Control__Penalties penalties = EDIT__CONTROL__PENALTIES__INIT;
	char *names[] = {(char *)"embedding", (char *)"block 0"};
	char *text = NULL;
	size_t size_bytes;
	(void)state;
	good.verdict = (char *)"accepted";
	good.norm = 0.5;
	good.weight = 0.25;
	bad.verdict = (char *)"nonfinite";
	bad.norm = NAN;
	bad.layer_index = 1;
	good.round = bad.round = penalties.round = 3;
	peer.name = (char *)"node-a";
	peer.steps = 10;
	peer.lateness_us = 12300;
	peer.n_layers = 2;
	peer.layers = rows;
	penalties.n_peers = 1;
	penalties.peers = peers;
	penalties.n_layer_names = 2;
	penalties.layer_names = names;
	FILE *out = open_memstream(&text, &size_bytes);
	assert_non_null(out);
	render_penalties(out, &penalties, false);
	fclose(out);
	assert_string_equal(text,
			    "after round 3: 1 of 2 left out\n"
			    "   PEER    LAYER      NORM  MEAN  SD     Z  WEIGHT  VERDICT    STEPS    LOSS     LATE  LATE, MEAN\n"
			    "   node-a  embedding   0.5     0   0  0.00  0.2500  accepted      10  0.0000  12.3 ms        0 us\n"
			    ">          block 0     nan     0   0  0.00  0.0000  nonfinite\n");
	free(text);
}

static void status_names_what_is_exchanged(void **state)
{
	Edit__Control__Status status = EDIT__CONTROL__STATUS__INIT;
	char *text = NULL;
	size_t size_bytes;
	(void)state;
	status.exchange = (char *)"gradients";
	FILE *out = open_memstream(&text, &size_bytes);
	assert_non_null(out);
	render_status(out, &status, false);
	fclose(out);
	const char *line = strstr(text, "exchange");
	assert_non_null(line);
	assert_int_equal(strspn(line + strlen("exchange"), " "), strcspn(line + strlen("exchange"), "g"));
	assert_non_null(strstr(line, " gradients\n"));
	free(text);
}

static void status_tells_the_place_in_a_mesh_and_what_to_do(void **state)
{
	Edit__Control__Status status = EDIT__CONTROL__STATUS__INIT;
	struct page page;
	(void)state;
	status.rows = 3;
	status.columns = 1;
	render_status(page_begin(&page), &status, false);
	fclose(page.out);
	assert_null(strstr(page.text, "place"));
	assert_null(strstr(page.text, "advice"));
	free(page.text);
	status.columns = 2;
	status.row = 2;
	status.advice = (char *)"wait";
	render_status(page_begin(&page), &status, false);
	fclose(page.out);
	assert_non_null(strstr(page.text, "\nplace       row 3 of 3, column 1 of 2\n"));
	assert_non_null(strstr(page.text, "\nadvice      wait\n"));
	free(page.text);
	status.degraded = status.advice; /* told once */
	render_status(page_begin(&page), &status, false);
	fclose(page.out);
	assert_null(strstr(page.text, "advice"));
	free(page.text);
}

static void status_tells_the_view_and_who_of_it_is_heard(void **state)
{
	Edit__Control__Status status = EDIT__CONTROL__STATUS__INIT;
	struct page page;
	(void)state;
	status.view = 3;
	status.columns = 1;
	status.view_members = 4;
	status.members_heard = 3;
	status.member_count = 5; /* of the view that it trains in */
	render_status(page_begin(&page), &status, false);
	fclose(page.out);
	assert_non_null(strstr(page.text, "\nmembers     view 3, 3 of 4 members heard\n"));
	free(page.text);
	status.columns = 2; /* of a mesh no node hears all */
	render_status(page_begin(&page), &status, false);
	fclose(page.out);
	assert_null(strstr(page.text, "members heard"));
	free(page.text);
	status.columns = 1;
	status.view = 0; /* of a daemon that knows of no views */
	render_status(page_begin(&page), &status, false);
	fclose(page.out);
	assert_null(strstr(page.text, "members heard"));
	free(page.text);
}

static void peers_tell_the_mates_below(void **state)
{
	Edit__Control__Peer mates[2], *mate_list[2] = {&mates[0], &mates[1]};
	Edit__Control__Peers peers = EDIT__CONTROL__PEERS__INIT;
	struct page page;
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		edit__control__peer__init(&mates[i]);
		mates[i].name = (char *)(i == 0 ? "b" : "long-name");
		mates[i].state = (char *)(i == 0 ? "live" : "refused");
		mates[i].address = (char *)"tcp://h:1";
		mates[i].neighbour = i == 0;
		mates[i].silent_us = 12300;
		mates[i].refusal = (char *)(i == 0 ? "" : "a fact differs");
	}
	peers.mates = mate_list;
	peers.n_mates = 2;
	render_peers(page_begin(&page), &peers, false);
	page_is(&page, "before the end of the first round\n"
		       "PEER  STATE  ADDRESS  STEPS  TOKENS  LOSS  TOKENS/S  LATE  LATE, MEAN  EXPOSED  LEFT OUT  SILENT\n"
		       "\n"
		       "the other nodes of this replica\n"
		       "MATE       STATE    ADDRESS     SILENT\n"
		       "b          live     tcp://h:1  12.3 ms\n"
		       "long-name  refused  tcp://h:1        -\n"
		       "long-name: a fact differs\n");
}

enum { MESH_MEMBERS = 6 };

struct drawing {
	Edit__Control__MeshMember members[MESH_MEMBERS], *member_list[MESH_MEMBERS];
	Edit__Control__Memory memory[2], *memory_list[2];
	Edit__Control__Mesh mesh;
};

/* After round 7, as many members as states, named a, b, ...; all heard ones are neighbours. */
static void drawing_init(struct drawing *drawing, uint32_t rows, uint32_t columns, const char *const *states)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
	edit__control__mesh__init(&drawing->mesh);
	for (size_t i = 0; i < rows * columns; i++) {
		Edit__Control__MeshMember *member = drawing->member_list[i] = &drawing->members[i];
		edit__control__mesh_member__init(member);
		member->name = (char *)(uintptr_t)names[i];
		member->state = (char *)(uintptr_t)states[i];
		member->neighbour = strcmp(states[i], "live") == 0;
		member->round = 7;
	}
	for (size_t i = 0; i < 2; i++) {
		drawing->memory_list[i] = &drawing->memory[i];
		edit__control__memory__init(&drawing->memory[i]);
		drawing->memory[i].kind = (char *)(i == 0 ? "theta" : "anchor");
		drawing->memory[i].bytes = (1 << 20) + i;
	}
	drawing->mesh.rows = drawing->mesh.fanout = rows;
	drawing->mesh.columns = columns;
	drawing->mesh.round = 7;
	drawing->mesh.worker_pid = 1;
	drawing->mesh.n_members = rows * columns;
	drawing->mesh.members = drawing->member_list;
}

/* Three replicas in two pieces, seen from b. */
static void mesh_is_drawn_row_by_row(void **state)
{
	static const char *const states[] = {"live", "self", "unknown", "down", "unknown", "live"};
	struct drawing drawing;
	struct page page;
	(void)state;
	drawing_init(&drawing, 3, 2, states);
	drawing.members[0].waits_for_worker = true;
	drawing.members[0].round = 6;
	drawing.members[5].neighbour = false;
	drawing.mesh.waiting_for = (char *)"d";
	drawing.mesh.stalled_us = 5000000;
	drawing.mesh.advice = (char *)"d is not heard";
	render_mesh(page_begin(&page), &drawing.mesh, false);
	page_is(&page, "3 replicas (rows) in 2 pieces (columns), after round 7\n"
		       "       COLUMN 1      COLUMN 2\n"
		       "row 1  a at 6 steps  [b]\n"
		       "row 2  c ?           d down\n"
		       "row 3  e ?           f (told)\n"
		       "[this node]  steps: its worker has not offered this round  at: the last round that it has told"
		       "  (told): not a neighbour, nobody has told that it is down  ?: not heard from here\n"
		       "waits for d, for 5.00 s\n"
		       "d is not heard\n"
		       "the worker has waited 0 us for whole layers\n");
	drawing.mesh.columns = 65; /* not what the list holds */
	drawing.mesh.waiting_for = drawing.mesh.advice = (char *)"";
	render_mesh(page_begin(&page), &drawing.mesh, false);
	page_is(&page, "3 replicas (rows) in 65 pieces (columns), after round 7\nthe worker has waited 0 us for whole layers\n");
}

static void mesh_that_is_too_wide_is_not_drawn(void **state)
{
	enum { COLUMNS = 65 };
	Edit__Control__MeshMember member = EDIT__CONTROL__MESH_MEMBER__INIT, *members[COLUMNS];
	Edit__Control__Mesh mesh = EDIT__CONTROL__MESH__INIT;
	struct page page;
	(void)state;
	for (size_t i = 0; i < COLUMNS; i++)
		members[i] = &member;
	mesh.rows = 1;
	mesh.columns = COLUMNS;
	mesh.n_members = COLUMNS;
	mesh.members = members;
	render_mesh(page_begin(&page), &mesh, false);
	page_is(&page, "1 replica (rows) in 65 pieces (columns), after round 0\n"
		       "too wide to be drawn: --json lists the members\n"
		       "the worker has waited 0 us for whole layers\n");
}

static void plain_ring_is_drawn_as_one_column(void **state)
{
	static const char *const states[] = {"self", "live"};
	struct drawing drawing;
	struct page page;
	(void)state;
	drawing_init(&drawing, 2, 1, states);
	drawing.members[0].waits_for_worker = true;
	render_mesh(page_begin(&page), &drawing.mesh, false);
	page_is(&page, "no mesh (mesh.shards = 1): a ring of 2 whole replicas, after round 7\n"
		       "       COLUMN 1\n"
		       "row 1  [a] steps\n"
		       "row 2  b\n"
		       "[this node]  steps: its worker has not offered this round\n");
}

static void mesh_tells_memory_in_bytes_and_what_cannot_be_read(void **state)
{
	static const char *const states[] = {"self"};
	struct drawing drawing;
	struct page page;
	(void)state;
	drawing_init(&drawing, 1, 1, states);
	drawing.mesh.memory = drawing.memory_list;
	drawing.mesh.n_memory = 2;
	drawing.mesh.worker_own_bytes = 5 << 19;
	drawing.mesh.daemon_bytes = 3 << 20;
	static const char head[] = "no mesh (mesh.shards = 1): a ring of 1 whole replica, after round 7\n       COLUMN 1\n";
	char expected[2048];
	snprintf(expected, sizeof(expected), "%srow 1  [a]\n[this node]\n\n%s", head,
		 "MEMORY OF THIS NODE                                  BYTES\n"
		 "theta                                              1048576  1.00 MiB\n"
		 "anchor                                             1048577  1.00 MiB\n"
		 "worker: activations and other, at its peak         2621440  2.50 MiB\n"
		 "sum                                                4718593  4.50 MiB\n"
		 "resident: editd (PSS)                              3145728  3.00 MiB\n"
		 "resident: worker (PSS)                      cannot be read\n");
	render_mesh(page_begin(&page), &drawing.mesh, false);
	page_is(&page, expected);
	drawing.mesh.worker_pid = drawing.mesh.worker_own_bytes = 0;
	snprintf(expected, sizeof(expected), "%srow 1  [a] no worker\n[this node]\n\n%s", head,
		 "MEMORY OF THIS NODE                             BYTES\n"
		 "theta                                         1048576  1.00 MiB\n"
		 "anchor                                        1048577  1.00 MiB\n"
		 "worker: activations and other, at its peak  no worker\n"
		 "sum, without the worker's own                 2097153  2.00 MiB\n"
		 "resident: editd (PSS)                         3145728  3.00 MiB\n"
		 "resident: worker (PSS)                      no worker\n");
	render_mesh(page_begin(&page), &drawing.mesh, false);
	page_is(&page, expected);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(units_change_where_a_fourth_figure_would_come),
		cmocka_unit_test(units_tell_what_is_not_a_number),
		cmocka_unit_test(table_aligns_columns_and_ends_lines_without_blanks),
		cmocka_unit_test(table_counts_characters_not_bytes),
		cmocka_unit_test(table_disarms_control_characters_and_colours_only_if_asked),
		cmocka_unit_test(table_leaves_out_a_row_that_is_not_full),
		cmocka_unit_test(json_writes_numbers_that_are_not_finite_as_strings),
		cmocka_unit_test(json_replaces_bytes_that_are_not_utf8),
		cmocka_unit_test(json_message_holds_every_kind_of_field),
		cmocka_unit_test(json_keeps_its_own_version_beside_that_of_the_daemon),
		cmocka_unit_test(penalties_mark_what_is_left_out),
		cmocka_unit_test(status_names_what_is_exchanged),
		cmocka_unit_test(status_tells_the_place_in_a_mesh_and_what_to_do),
		cmocka_unit_test(status_tells_the_view_and_who_of_it_is_heard),
		cmocka_unit_test(peers_tell_the_mates_below),
		cmocka_unit_test(mesh_is_drawn_row_by_row),
		cmocka_unit_test(mesh_that_is_too_wide_is_not_drawn),
		cmocka_unit_test(plain_ring_is_drawn_as_one_column),
		cmocka_unit_test(mesh_tells_memory_in_bytes_and_what_cannot_be_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
