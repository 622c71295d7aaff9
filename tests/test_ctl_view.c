/* `editctl view` drawn for people: a ring, one without a majority, and a mesh. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/render.h"
#include "tests/page.h"

struct sitting {
	Edit__Control__View view;
	Edit__Control__ViewMember members[3], *list[3];
};

/* A view of a, b (the node asked) and c (the tie-holder), all heard. */
static void sitting_init(struct sitting *sitting)
{
	static const char *const names[] = {"a", "b", "c"}, *const states[] = {"live", "self", "live"};
	*sitting = (struct sitting){.view = EDIT__CONTROL__VIEW__INIT};
	for (size_t i = 0; i < 3; i++) {
		edit__control__view_member__init(&sitting->members[i]);
		sitting->members[i].name = (char *)(uintptr_t)names[i];
		sitting->members[i].state = (char *)(uintptr_t)states[i];
		sitting->members[i].address = (char *)"tcp://10.0.0.1:7700";
		sitting->members[i].heard = true;
		sitting->list[i] = &sitting->members[i];
	}
	sitting->members[2].holder = true;
	sitting->view.members = sitting->list;
	sitting->view.n_members = 3;
	sitting->view.number = 4;
	sitting->view.name = (char *)"b";
	sitting->view.place = (char *)"in";
	sitting->view.text = (char *)"in it";
	sitting->view.heard = 3;
	sitting->view.majority = true;
	sitting->view.council = (char *)"idle";
	sitting->view.entered = 1;
}

static void view_names_the_members_in_ring_order(void **state)
{
	struct sitting sitting;
	struct page page;
	(void)state;
	sitting_init(&sitting);
	render_view(page_begin(&page), &sitting.view, false);
	page_is(&page, "view 4, 3 of 3 members heard\n"
		       "b: in it\n"
		       "MEMBER  STATE  ADDRESS\n"
		       "a       live   tcp://10.0.0.1:7700\n"
		       "b       self   tcp://10.0.0.1:7700  this node\n"
		       "c       live   tcp://10.0.0.1:7700  tie-holder\n"
		       "(tie-holder: of two halves the one with it goes on)\n"
		       "council: idle\n"
		       "since the start: 1 view entered, 0 proposed, 0 given way\n");
}

static void view_without_a_majority_says_so_and_who_waits(void **state)
{
	char *joiners[] = {(char *)"d", (char *)"e\033[2J"};
	struct sitting sitting;
	struct page page;
	(void)state;
	sitting_init(&sitting);
	sitting.members[0].heard = sitting.members[2].heard = false;
	sitting.members[0].state = sitting.members[2].state = (char *)"down";
	sitting.members[0].leaving = true;
	sitting.view.heard = 1;
	sitting.view.majority = false;
	sitting.view.joiners = joiners;
	sitting.view.n_joiners = 2;
	sitting.view.council = (char *)"asking";
	sitting.view.trouble = (char *)"vote-r: No space left on device";
	sitting.view.entered = 2;
	sitting.view.proposed = 5;
	sitting.view.given_way = 1;
	sitting.view.contradictions = 1;
	sitting.view.failed = 3;
	render_view(page_begin(&page), &sitting.view, false);
	page_is(&page, "view 4, 1 of 3 members heard: no majority, nothing can be decided (see `editctl force`)\n"
		       "b: in it\n"
		       "MEMBER  STATE  ADDRESS\n"
		       "a       down   tcp://10.0.0.1:7700  not heard, leaving\n"
		       "b       self   tcp://10.0.0.1:7700  this node\n"
		       "c       down   tcp://10.0.0.1:7700  tie-holder, not heard\n"
		       "(tie-holder: of two halves the one with it goes on)\n"
		       "asks to be taken in: d e?[2J\n"
		       "council: this node asks the others for a next view; 3 attempts failed so far\n"
		       "since the start: 2 views entered, 5 proposed, 1 given way\n"
		       "cannot vote: vote-r: No space left on device\n"
		       "another list of this number has come: two rings have gone on apart since a view was forced\n");
}

static void view_of_a_mesh_is_the_list_alone(void **state)
{
	struct sitting sitting;
	struct page page;
	(void)state;
	sitting_init(&sitting);
	sitting.members[2].holder = sitting.members[2].heard = false;
	sitting.members[2].state = (char *)"unknown";
	sitting.view.heard = 2;
	sitting.view.council = (char *)"";
	sitting.view.place = (char *)"fixed";
	sitting.view.text = (char *)"a mesh: its members do not change";
	render_view(page_begin(&page), &sitting.view, false);
	page_is(&page, "view 4, 3 members\n"
		       "b: a mesh: its members do not change\n"
		       "MEMBER  STATE    ADDRESS\n"
		       "a       live     tcp://10.0.0.1:7700\n"
		       "b       self     tcp://10.0.0.1:7700  this node\n"
		       "c       unknown  tcp://10.0.0.1:7700\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(view_names_the_members_in_ring_order),
		cmocka_unit_test(view_without_a_majority_says_so_and_who_waits),
		cmocka_unit_test(view_of_a_mesh_is_the_list_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
