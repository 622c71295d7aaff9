/* Councils with disks, drivers and a network, in virtual time. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/assembly.h"

enum { DELIVER, PERSISTED, TICK, WATCH, KNOCK };

#define WATCH_US 50000
#define SILENCE_US 300000
#define BYTES (ASSEMBLY_MAX * sizeof(struct seat))

/* A message on its way, with everything that it points to. */
struct letter {
	struct decree decree;
	uint32_t from; /* who gets an answer that goes back where this came from */
	char sender[SEAT_NAME_BYTES], receiver[SEAT_NAME_BYTES], relay[SEAT_NAME_BYTES], address[SEAT_ADDRESS_BYTES];
	struct seat seats[ASSEMBLY_MAX];
};

__attribute__((format(printf, 2, 3))) static void fault(struct assembly *assembly, const char *format, ...)
{
	if (assembly->fault[0] != 0)
		return;
	va_list words;
	va_start(words, format);
	vsnprintf(assembly->fault, sizeof assembly->fault, format, words);
	va_end(words);
}

static void *need(void *memory)
{
	CHECK(memory != NULL);
	return memory;
}

static struct seat seat_of(uint32_t member, uint64_t incarnation, uint64_t disk)
{
	const char name[2] = {(char)('a' + member), 0};
	char address[32];
	struct seat seat = {.incarnation = 0};
	snprintf(address, sizeof address, "tcp://%s:7700", name);
	CHECK(seat_make(name, address, incarnation, disk, &seat) == 0);
	return seat;
}

static uint32_t member_of(const char *name)
{
	return (uint32_t)(name[0] - 'a');
}

static void hold(struct vote *vote)
{
	vote_init(vote, need(aligned_alloc(64, vote_size(ASSEMBLY_MAX))), ASSEMBLY_MAX);
}

/* ---- Network ---- */

static void copy_text(char *to, const char **text, size_t size)
{
	if (*text == NULL)
		return;
	memcpy(to, *text, size);
	*text = to;
}

static void put_letter(struct assembly *assembly, uint32_t from, uint32_t to, const struct decree *decree)
{
	struct letter *letter = need(calloc(1, sizeof *letter));
	letter->from = from;
	letter->decree = *decree;
	copy_text(letter->sender, &letter->decree.sender, sizeof letter->sender);
	copy_text(letter->receiver, &letter->decree.receiver, sizeof letter->receiver);
	copy_text(letter->relay, &letter->decree.relay, sizeof letter->relay);
	copy_text(letter->address, &letter->decree.address, sizeof letter->address);
	if (decree->roster.count > 0)
		memcpy(letter->seats, decree->roster.seats, decree->roster.count * sizeof(struct seat));
	letter->decree.roster.seats = letter->seats;
	heap_push(&assembly->heap, (struct heap_entry){
		.time_us = assembly->now_us + dice_between(&assembly->dice, assembly->delay_low_us, assembly->delay_high_us),
		.kind = DELIVER, .rank = to, .data = letter});
}

static void put(struct assembly *assembly, uint32_t from, uint32_t to, const struct decree *decree)
{
	assembly->sent[decree->kind]++;
	if (assembly->cut[from][to] || assembly->muted[decree->kind] || dice_chance(&assembly->dice, assembly->loss))
		return;
	put_letter(assembly, from, to, decree);
	if (dice_chance(&assembly->dice, assembly->repeat))
		put_letter(assembly, from, to, decree);
}

/* ---- Laws ---- */

static void see_roster(struct assembly *assembly, const struct roster *roster)
{
	CHECK(roster->number < ASSEMBLY_VIEW_MAX);
	struct roster *known = &assembly->decided[roster->number];
	assembly->highest = u64_max(assembly->highest, roster->number);
	if (known->count == 0) {
		known->seats = need(malloc(BYTES));
		roster_copy(known, roster);
	} else if (!assembly->is_forced && !roster_is_equal(known, roster)) {
		fault(assembly, "view %llu has two rosters", (unsigned long long)roster->number);
	}
}

/* What a message says must be on the disk of who says it. */
static void see_words(struct assembly *assembly, uint32_t member, const struct decree *decree)
{
	const struct delegate *delegate = &assembly->delegates[member];
	const struct vote *file = &delegate->file;
	if (decree->kind == DECREE_DECIDED)
		see_roster(assembly, &decree->roster);
	if (member_of(decree->sender) != member || decree->kind > DECREE_ACCEPTED)
		return;
	bool is_there = delegate->has_file && file->roster.number == decree->view && file->promised >= decree->ballot;
	if (decree->kind == DECREE_ACCEPT || decree->kind == DECREE_ACCEPTED)
		is_there &= file->accepted_ballot >= decree->ballot;
	if (decree->kind == DECREE_PROMISE)
		is_there &= file->accepted_ballot == decree->accepted_ballot;
	if (!is_there)
		fault(assembly, "%c says kind %d of view %llu, which is not on its disk", 'a' + member, decree->kind,
				(unsigned long long)decree->view);
}

static void see_install(struct assembly *assembly, uint32_t member, const struct roster *roster)
{
	struct delegate *delegate = &assembly->delegates[member];
	see_roster(assembly, roster);
	if (roster->number < delegate->installed || (roster->number == delegate->installed && roster->number > 1))
		fault(assembly, "%c goes back from view %llu to %llu", 'a' + member, (unsigned long long)delegate->installed,
				(unsigned long long)roster->number);
	if (!delegate->has_file || !delegate->file.is_voter || delegate->file.roster.number != roster->number)
		fault(assembly, "%c is in view %llu, which is not on its disk", 'a' + member, (unsigned long long)roster->number);
	if (roster_find_seat(roster, &delegate->council.config.self) == roster->count)
		fault(assembly, "%c is in view %llu, which does not have it", 'a' + member, (unsigned long long)roster->number);
}

/* ---- Driver ---- */

static void step(struct assembly *assembly, uint32_t member, struct council_event event, uint32_t from);

static void persist(struct assembly *assembly, uint32_t member, const struct vote *vote)
{
	struct delegate *delegate = &assembly->delegates[member];
	vote_copy(&delegate->writing, vote);
	delegate->writes = true;
	heap_push(&assembly->heap, (struct heap_entry){.time_us = assembly->now_us + dice_between(&assembly->dice, 0,
			assembly->disk_us),
						       .kind = PERSISTED, .rank = member, .life = delegate->life});
}

static void come_out(struct assembly *assembly, uint32_t member)
{
	struct delegate *delegate = &assembly->delegates[member];
	delegate->is_out = true;
	if (!delegate->leaves)
		heap_push(&assembly->heap, (struct heap_entry){.time_us = assembly->now_us + 200000, .kind = KNOCK, .rank = member,
				.life = delegate->life});
}

static void carry_out(struct assembly *assembly, uint32_t member, uint32_t from)
{
	struct delegate *delegate = &assembly->delegates[member];
	for (size_t i = 0; i < assembly->actions.count; i++) {
		const struct council_action *action = &assembly->actions.list[i];
		switch (action->kind) {
		case COUNCIL_ACTION_SEND:
			CHECK(decree_check(&action->decree, ASSEMBLY_MAX) == 0);
			see_words(assembly, member, &action->decree);
			put(assembly, member, action->to != NULL ? member_of(action->to->name) : from, &action->decree);
			break;
		case COUNCIL_ACTION_PERSIST: persist(assembly, member, action->vote); break;
		case COUNCIL_ACTION_INSTALL:
			see_install(assembly, member, action->roster);
			delegate->installed = action->roster->number;
			delegate->is_out = false;
			for (uint32_t other = 0; other < ASSEMBLY_MAX; other++)
				delegate->heard_us[other] = assembly->now_us;
			memset(delegate->is_doubted, 0, sizeof delegate->is_doubted);
			break;
		case COUNCIL_ACTION_OUT: come_out(assembly, member); break;
		case COUNCIL_ACTION_REFUSED: delegate->last_refusal = action->refusal; break;
		}
	}
}

static void step(struct assembly *assembly, uint32_t member, struct council_event event, uint32_t from)
{
	struct delegate *delegate = &assembly->delegates[member];
	event.now_us = assembly->now_us;
	council_step(&delegate->council, &event, &assembly->actions);
	carry_out(assembly, member, from);
	delegate->tick_us = UINT64_MAX;
	heap_arm(&assembly->heap, &delegate->tick_us, assembly->now_us,
		 (struct heap_entry){.time_us = assembly->actions.deadline_us, .kind = TICK, .rank = member, .life = delegate->life});
}

/* Ring frames of the same view come through. */
static bool hears(const struct assembly *assembly, uint32_t member, uint32_t other, const struct roster *roster,
		uint32_t rank)
{
	const struct delegate *them = &assembly->delegates[other];
	return them->is_live && !them->is_out && them->installed == roster->number && !assembly->cut[other][member] &&
	       seat_admits(&roster->seats[rank], them->council.config.self.incarnation);
}

static void watch(struct assembly *assembly, uint32_t member)
{
	struct delegate *delegate = &assembly->delegates[member];
	const struct roster *roster = &delegate->council.vote.roster;
	uint32_t own = council_rank(&delegate->council), neighbours[ROAD_COUNT];
	if (assembly->is_trusting || delegate->is_out || delegate->installed != roster->number || own == roster->count)
		return;
	size_t count = roster_neighbours(roster, own, neighbours);
	for (size_t i = 0; i < count && delegate->installed == roster->number; i++) {
		uint32_t other = member_of(roster->seats[neighbours[i]].name);
		bool is_heard = hears(assembly, member, other, roster, neighbours[i]);
		if (is_heard)
			delegate->heard_us[other] = assembly->now_us;
		bool is_doubted = assembly->now_us - delegate->heard_us[other] >= SILENCE_US;
		if (is_doubted == delegate->is_doubted[other])
			continue;
		delegate->is_doubted[other] = is_doubted;
		char name[SEAT_NAME_BYTES];
		memcpy(name, roster->seats[neighbours[i]].name, sizeof name);
		step(assembly, member, (struct council_event){.kind = is_doubted ? COUNCIL_EVENT_DOUBT : COUNCIL_EVENT_HEARD,
				.name = name}, member);
	}
}

/* A JOIN under a name that is in the view counts only if the incarnation there does not answer. */
static bool may_join(const struct assembly *assembly, uint32_t member, const struct decree *decree)
{
	const struct roster *roster = &assembly->delegates[member].council.vote.roster;
	uint32_t rank = roster_find(roster, decree->sender);
	const struct delegate *them = &assembly->delegates[member_of(decree->sender)];
	return rank == roster->count || roster->seats[rank].incarnation == decree->incarnation || !them->is_live ||
	       them->council.config.self.incarnation != roster->seats[rank].incarnation;
}

void assembly_deliver(struct assembly *assembly, uint32_t from, uint32_t to, const struct decree *decree)
{
	if (!assembly->delegates[to].is_live || (decree->kind == DECREE_JOIN && decree_check(decree, ASSEMBLY_MAX) == 0 &&
			!may_join(assembly, to, decree)))
		return;
	step(assembly, to, (struct council_event){.kind = COUNCIL_EVENT_DECREE, .decree = decree}, from);
}

/* ---- Lives ---- */

struct assembly *assembly_open(uint64_t seed, uint32_t count, uint32_t fanout)
{
	struct assembly *assembly = need(calloc(1, sizeof *assembly));
	assembly->count = count;
	assembly->fanout = fanout;
	assembly->dice.state = seed;
	assembly->delay_low_us = 1000;
	assembly->delay_high_us = 5000;
	assembly->disk_us = 2000;
	assembly->incarnations = 100;
	for (uint32_t member = 0; member < ASSEMBLY_MAX; member++) {
		hold(&assembly->delegates[member].file);
		hold(&assembly->delegates[member].writing);
		assembly->delegates[member].fingerprint = 1;
	}
	return assembly;
}

static void bury(struct assembly *assembly, uint32_t member)
{
	struct delegate *delegate = &assembly->delegates[member];
	const uint64_t *from = (const uint64_t *)&delegate->council.counts;
	for (size_t i = 0; i < sizeof assembly->counts / sizeof *from; i++)
		((uint64_t *)&assembly->counts)[i] += from[i];
	memset(&delegate->council.counts, 0, sizeof delegate->council.counts);
	free(delegate->block);
	delegate->block = NULL;
	delegate->is_live = false;
}

void assembly_close(struct assembly *assembly)
{
	struct heap_entry entry;
	while (heap_pop(&assembly->heap, &entry))
		free(entry.data);
	heap_fini(&assembly->heap);
	for (uint32_t member = 0; member < ASSEMBLY_MAX; member++) {
		free(assembly->delegates[member].block);
		free(assembly->delegates[member].file.roster.seats);
		free(assembly->delegates[member].writing.roster.seats);
	}
	for (size_t i = 0; i < ASSEMBLY_VIEW_MAX; i++)
		free(assembly->decided[i].seats);
	free(assembly);
}

void assembly_start(struct assembly *assembly, uint32_t member)
{
	struct delegate *delegate = &assembly->delegates[member];
	const struct roster *today = &assembly->decided[assembly->highest];
	struct seat seats[ASSEMBLY_MAX];
	struct roster list = {.number = 1, .count = delegate->has_begun ? today->count : assembly->count, .seats = seats};
	list.fanout = roster_fanout(list.count, assembly->fanout);
	for (uint32_t rank = 0; rank < list.count; rank++)
		seats[rank] = seat_of(delegate->has_begun ? member_of(today->seats[rank].name) : rank, 0, 0);
	assembly->incarnations++;
	const struct council_config config = {
		.self = seat_of(member, assembly->incarnations,
				delegate->has_file ? delegate->file.disk : assembly->incarnations + 1000000),
		.list = &list, .vote = delegate->has_file ? &delegate->file : NULL,
		.capacity = ASSEMBLY_MAX, .fanout = assembly->fanout, .patience_us = 200000, .gather_us = 500000, .rank_us = 50000,
		.fingerprint = delegate->fingerprint};
	CHECK(!delegate->is_live);
	delegate->block = need(aligned_alloc(64, council_size(ASSEMBLY_MAX)));
	council_init(&delegate->council, delegate->block, &config);
	delegate->council.now_us = assembly->now_us;
	delegate->is_live = true;
	delegate->is_out = !delegate->council.is_member;
	delegate->installed = 0;
	delegate->leaves = delegate->writes = false;
	delegate->last_refusal = 0;
	delegate->life++;
	assembly->restarts += delegate->life > 1;
	step(assembly, member, (struct council_event){.kind = COUNCIL_EVENT_TICK}, member);
	heap_push(&assembly->heap, (struct heap_entry){.time_us = assembly->now_us, .kind = WATCH, .rank = member,
			.life = delegate->life});
	if (delegate->has_begun || member >= assembly->count)
		step(assembly, member, (struct council_event){.kind = COUNCIL_EVENT_JOIN}, member);
}

void assembly_complete(struct assembly *assembly, uint32_t member)
{
	assembly->delegates[member].has_begun = true;
	step(assembly, member, (struct council_event){.kind = COUNCIL_EVENT_BEGIN}, member);
}

void assembly_begin(struct assembly *assembly)
{
	for (uint32_t member = 0; member < assembly->count; member++)
		assembly_start(assembly, member);
	for (uint32_t member = 0; member < assembly->count; member++)
		assembly_complete(assembly, member);
	assembly_run(assembly, 100000);
}

void assembly_crash(struct assembly *assembly, uint32_t member)
{
	struct delegate *delegate = &assembly->delegates[member];
	if (delegate->writes && dice_chance(&assembly->dice, 0.5)) {
		vote_copy(&delegate->file, &delegate->writing);
		delegate->has_file = true;
	}
	bury(assembly, member);
}

void assembly_lose_disk(struct assembly *assembly, uint32_t member)
{
	CHECK(!assembly->delegates[member].is_live);
	assembly->delegates[member].has_file = false;
}

void assembly_ready(struct assembly *assembly, uint32_t member, uint64_t fingerprint)
{
	assembly->delegates[member].fingerprint = fingerprint;
	if (assembly->delegates[member].is_live)
		step(assembly, member, (struct council_event){.kind = COUNCIL_EVENT_READY, .fingerprint = fingerprint}, member);
}

void assembly_renew(struct assembly *assembly, uint32_t member)
{
	step(assembly, member, (struct council_event){.kind = COUNCIL_EVENT_RENEW}, member);
}

void assembly_leave(struct assembly *assembly, uint32_t member)
{
	assembly->delegates[member].leaves = true;
	step(assembly, member, (struct council_event){.kind = COUNCIL_EVENT_LEAVE}, member);
}

int assembly_force(struct assembly *assembly, uint32_t member, const char *names)
{
	char list[ASSEMBLY_MAX * SEAT_NAME_BYTES] = {0};
	uint32_t count = 0;
	for (; names[count] != 0; count++)
		list[count * SEAT_NAME_BYTES] = names[count];
	int error = council_force(&assembly->delegates[member].council, list, count, assembly->now_us, &assembly->actions);
	if (error == 0) {
		assembly->is_forced = true;
		carry_out(assembly, member, member);
	}
	return error;
}

void assembly_cut(struct assembly *assembly, uint32_t one, uint32_t other, bool is_cut)
{
	assembly->cut[one][other] = assembly->cut[other][one] = is_cut;
}

/* ---- Time ---- */

static void happen(struct assembly *assembly, const struct heap_entry *entry)
{
	struct delegate *delegate = &assembly->delegates[entry->rank];
	if (entry->kind == DELIVER) {
		struct letter *letter = entry->data;
		assembly_deliver(assembly, letter->from, entry->rank, &letter->decree);
		free(letter);
	} else if (!delegate->is_live || entry->life != delegate->life) {
		return;
	} else if (entry->kind == PERSISTED) {
		vote_copy(&delegate->file, &delegate->writing);
		delegate->has_file = true;
		delegate->writes = false;
		CHECK(vote_check(&delegate->file, ASSEMBLY_MAX) == 0);
		step(assembly, entry->rank, (struct council_event){.kind = COUNCIL_EVENT_PERSISTED}, entry->rank);
	} else if (entry->kind == TICK && heap_keeps(entry, &delegate->tick_us)) {
		if (++delegate->ticks > 1000 + assembly->now_us / 10000)
			fault(assembly, "%c is woken all the time", 'a' + (int)entry->rank);
		step(assembly, entry->rank, (struct council_event){.kind = COUNCIL_EVENT_TICK}, entry->rank);
	} else if (entry->kind == WATCH) {
		watch(assembly, entry->rank);
		heap_push(&assembly->heap, (struct heap_entry){.time_us = assembly->now_us + WATCH_US, .kind = WATCH,
				.rank = entry->rank, .life = entry->life});
	} else if (entry->kind == KNOCK && delegate->is_out && !delegate->leaves) {
		step(assembly, entry->rank, (struct council_event){.kind = COUNCIL_EVENT_JOIN}, entry->rank);
	}
}

void assembly_run(struct assembly *assembly, uint64_t us)
{
	const uint64_t end_us = assembly->now_us + us;
	struct heap_entry entry;
	while (assembly->fault[0] == 0 && assembly->heap.count > 0 && assembly->heap.list[0].time_us <= end_us) {
		heap_pop(&assembly->heap, &entry);
		assembly->now_us = u64_max(assembly->now_us, entry.time_us);
		happen(assembly, &entry);
	}
	assembly->now_us = end_us;
}

/* ---- Looking ---- */

const char *assembly_view(const struct assembly *assembly, uint32_t member, char *ret)
{
	const struct delegate *delegate = &assembly->delegates[member];
	const struct roster *roster = &delegate->council.vote.roster;
	if (!delegate->is_live || delegate->is_out || delegate->installed != roster->number)
		return strcpy(ret, "-");
	for (uint32_t rank = 0; rank < roster->count; rank++)
		ret[rank] = (char)(roster->seats[rank].name[0] - (rank == roster->holder ? 'a' - 'A' : 0));
	ret[roster->count] = 0;
	return ret;
}

struct council_counts assembly_counts(const struct assembly *assembly)
{
	struct council_counts sum = assembly->counts;
	for (uint32_t member = 0; member < ASSEMBLY_MAX; member++) {
		const uint64_t *from = (const uint64_t *)&assembly->delegates[member].council.counts;
		for (size_t i = 0; i < sizeof sum / sizeof *from; i++)
			((uint64_t *)&sum)[i] += from[i];
	}
	return sum;
}

bool assembly_can_decide(const struct assembly *assembly)
{
	const struct roster *roster = &assembly->decided[assembly->highest];
	bool has[ASSEMBLY_MAX] = {false};
	for (uint32_t rank = 0; rank < roster->count; rank++) {
		const struct delegate *delegate = &assembly->delegates[member_of(roster->seats[rank].name)];
		const struct vote *vote = &delegate->council.vote;
		has[rank] = delegate->is_live && vote->is_voter && vote->roster.number == roster->number;
	}
	return roster_is_quorum(roster, has);
}
