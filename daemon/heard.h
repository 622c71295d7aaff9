#ifndef EDIT_DAEMON_HEARD_H
#define EDIT_DAEMON_HEARD_H

/* Which members are heard, as far as can be told here: live, and in reach along the ring by way of each other. */

#include "daemon/daemon.h"

/* The list of members that this node knows: the council's, whose seats are the council's; of a mesh only number and count. */
struct roster heard_roster(const struct daemon *daemon);
/* Whether the node's ranks are those of the list. */
bool heard_is_seated(const struct daemon *daemon, const struct roster *roster);
/* Whether it is this start of this member. */
bool heard_is_self(const struct daemon *daemon, const struct roster *roster, uint32_t rank);
/* What the node knows of a member of the list; PEER_UNKNOWN if its ranks are other ones. */
struct node_peer heard_peer(const struct daemon *daemon, const struct roster *roster, uint32_t rank);
/* Fills has[roster->count]; returns how many there are. Who is no member hears none. */
uint32_t heard_members(const struct daemon *daemon, const struct roster *roster, bool *has);

#endif
