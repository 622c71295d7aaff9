#ifndef EDIT_PROTO_CODEC_STANDING_H
#define EDIT_PROTO_CODEC_STANDING_H

/* The part of the codec for what members tell each other at the begin of a view: struct standing and struct holding <-> peer.proto. Only
 * for proto/codec.c. */

#include "core/event.h"
#include "proto/codec_arena.h"
#include "proto/peer.pb-c.h"

/* Fills wire, which borrows the lists of settings. */
void codec_fill_standing(const struct standing *standing, Edit__Peer__Standing *wire);
void codec_fill_holding(const struct holding *holding, Edit__Peer__Holding *wire);
/* Check and take; a standing lies in the arena. NULL, or the name of the field that is wrong. */
const char *codec_take_standing(struct arena *arena, const Edit__Peer__Standing *wire, const struct standing **ret_standing);
const char *codec_take_holding(const Edit__Peer__Holding *wire, struct holding *ret_holding);

#endif
