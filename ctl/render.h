#ifndef EDIT_CTL_RENDER_H
#define EDIT_CTL_RENDER_H

/* Replies as text for people. Reads messages, writes tables; keeps nothing. */

#include <stdbool.h>
#include <stdio.h>

#include "proto/control.pb-c.h"

/* Writes the body of a reply. */
void render_reply(FILE *out, const Edit__Control__Reply *reply, bool colour);

/* One node and the ring at a glance. */
void render_status(FILE *out, const Edit__Control__Status *status, bool colour);
/* One row per member, then why a member was refused; of a mesh, the other nodes of the own replica below. */
void render_peers(FILE *out, const Edit__Control__Peers *peers, bool colour);
/* A line with the number of (member, layer) pairs left out, then one row for each pair; left out ones are marked by '>'. */
void render_penalties(FILE *out, const Edit__Control__Penalties *penalties, bool colour);
/* One row per layer, then the sum of their sizes. */
void render_layers(FILE *out, const Edit__Control__Layers *layers, bool colour);
/* One row per layer and hash: one if all members agree. Then whether all layers do. */
void render_hashes(FILE *out, const Edit__Control__Hashes *hashes, bool colour);
/* The mesh as a table (a ring: one column), who waits for whom, and the memory of the node asked by kind, in bytes and MiB. */
void render_mesh(FILE *out, const Edit__Control__Mesh *mesh, bool colour);
/* Number and place in a line or two, a table of the members in ring order, who asks to be let in, and what the council is at. */
void render_view(FILE *out, const Edit__Control__View *view, bool colour);
/* One row per setting. */
void render_settings(FILE *out, const Edit__Control__Settings *settings, bool colour);
/* One line. */
void render_change(FILE *out, const Edit__Control__Change *change, bool colour);

#endif
