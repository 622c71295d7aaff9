#ifndef EDIT_CORE_PROPOSER_H
#define EDIT_CORE_PROPOSER_H

/* A council's proposer: from a reason to a decided roster. Its state is in struct council; it owns nothing. */

#include "core/councillor.h"

/* The attempt has failed: idle, and not again before a time that doubles with each failure and differs between ranks. */
void proposer_back_off(struct council *council);
/* Somebody else is at it: not before that may be over. */
void proposer_hold_off(struct council *council);
/* A new attempt: a ballot above all that were heard of. A proposer is the first to promise it, so no other incarnation
 * uses it again. */
void proposer_prepare(struct council *council, struct council_actions *actions);
/* The own promise is on disk: asks the others. */
void proposer_begin_gathering(struct council *council, struct council_actions *actions);
/* The own vote is on disk: asks the others. */
void proposer_begin_accepting(struct council *council, struct council_actions *actions);
/* What a member has promised, and perhaps accepted before; for the own ballot. */
void proposer_take_promise(struct council *council, uint32_t from, const struct decree *decree);
/* Time passes, or something was heard: goes on to the next stage, decides, says again what may be lost, or gives up for
 * now. Nothing may be owed to the disk. */
void proposer_watch(struct council *council, struct council_actions *actions);

#endif
