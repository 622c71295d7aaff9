#ifndef EDIT_PROTO_CODEC_VIEWS_H
#define EDIT_PROTO_CODEC_VIEWS_H

/* The codec's part for the messages by which members change: decrees, and what a view begins with. For proto/codec.c; what is
 * filled borrows from the message, what is taken lies in the arena. */

#include "core/decree.h"
#include "proto/codec_arena.h"
#include "proto/codec_demand.h"
#include "proto/peer.pb-c.h"

/* A decree being written, and its roster. */
struct decree_wire {
	Edit__Peer__Decree decree;
	Edit__Peer__Roster roster;
};

/* Fill the generated structs; what a decree's roster needs besides is taken from the arena. The decree holds to
 * core/decree.h. */
void decree_fill(struct arena *arena, const struct decree *decree, struct decree_wire *wire);
void standing_fill(const struct standing *standing, Edit__Peer__Standing *wire);
void holding_fill(const struct holding *holding, Edit__Peer__Holding *wire);

/* Check and take over. NULL, or the name of the field that is wrong, a constant string. */
const char *take_decree(struct arena *arena, const Edit__Peer__Decree *wire, const struct decree **ret_decree);
const char *take_standing(struct arena *arena, const Edit__Peer__Standing *wire, const struct standing **ret_standing);
const char *take_holding(const Edit__Peer__Holding *wire, struct holding *holding);

#endif
