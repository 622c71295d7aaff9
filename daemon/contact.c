/* Opening contacts, and closing those that are no longer used. */

#include "daemon/contact.h"

#include <string.h>

enum {
	QUEUE_MAX = 16,    /* decrees that wait for a connection, or for one that is slow */
	IDLE_US = 5000000
};

static void drop(struct contacts *contacts, size_t index)
{
	dealer_close(&contacts->list[index].dealer);
	contacts->list[index] = contacts->list[--contacts->count];
}

static void make_room(struct contacts *contacts)
{
	size_t oldest = 0;
	for (size_t i = 0; i < contacts->count; i++)
		if (contacts->list[i].used_us < contacts->list[oldest].used_us)
			oldest = i;
	if (contacts->count == CONTACT_COUNT_MAX)
		drop(contacts, oldest);
}

struct contact *contacts_reach(struct contacts *contacts, const struct seat *to, uint64_t now_us)
{
	for (size_t i = 0; i < contacts->count; i++) {
		struct contact *contact = &contacts->list[i];
		if (strcmp(contact->dealer.name, to->name) != 0 || strcmp(contact->dealer.address, to->address) != 0)
			continue;
		contact->used_us = now_us;
		if (!contact->dealer.is_unheard)
			contact->until_us = now_us + IDLE_US;
		return contact;
	}
	make_room(contacts);
	struct contact *contact = &contacts->list[contacts->count++];
	dealer_init(&contact->dealer, contacts->self, to->name, to->address);
	contact->dealer.queue_max = QUEUE_MAX;
	contact->dealer.is_unheard = contacts->count > CONTACT_HEARD_MAX;
	contact->used_us = now_us;
	contact->until_us = now_us + IDLE_US;
	/* What failed is tried again by dealer_step, for as long as somebody wants it. */
	dealer_connect(&contact->dealer);
	return contact;
}

struct contact *contacts_find(struct contacts *contacts, uint64_t number)
{
	for (size_t i = 0; i < contacts->count; i++)
		if (contacts->list[i].dealer.number == number)
			return &contacts->list[i];
	return NULL;
}

void contacts_step(struct contacts *contacts, uint64_t now_us)
{
	for (size_t i = contacts->count; i-- > 0;)
		if (now_us >= contacts->list[i].until_us)
			drop(contacts, i);
		else
			dealer_step(&contacts->list[i].dealer, now_us);
}

void contacts_rekey(struct contacts *contacts)
{
	for (size_t i = 0; i < contacts->count; i++)
		dealer_rekey(&contacts->list[i].dealer);
}

void contacts_close(struct contacts *contacts)
{
	while (contacts->count > 0)
		drop(contacts, contacts->count - 1);
}
