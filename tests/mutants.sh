#!/bin/bash
# Proves the simulator: faults are planted in a copy of the core, one at a time, and edit-sim must find each of them. What drawn worlds
# have no part in, a test must find.
#
#   tests/mutants.sh [SEEDS [NAMES]]    (default 1000; `make mutants`; NAMES: only those whose name matches this expression)
#
# A mutant whose pattern is not found in the source is a failure too: the table must follow the code. Prints one line per
# mutant with the seed that caught it; exits 1 if any lived.
set -u
seeds=${1:-1000}
names=${2:-.}
root=$(cd "$(dirname "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$root"/{Makefile,core,ctl,daemon,proto,sim,tests,worker} "$copy"
cd "$copy" || exit 1
build() { make -s WERROR= OPT=-O1 "${1:-build/edit-sim}" >build.log 2>&1; }
if ! build; then
	cat build.log
	exit 1
fi
if ! build/edit-sim --seeds 100 >out.txt; then
	echo "the core without a mutant fails:"
	head -1 out.txt
	exit 1
fi
lived=0

# Plants a fault: plant FILE SED-EXPRESSION TARGET; result is empty if it is there and TARGET is built with it.
plant() {
	result=
	cp "$1" saved
	sed -i -E "$2" "$1"
	if cmp -s saved "$1"; then
		result="LIVES: its pattern is not in $1 any more"
	elif ! build "$3"; then
		result="LIVES: does not compile: $(grep -m1 error build.log)"
	fi
}

# Takes the fault out again and tells what became of it: tell NAME FILE
tell() {
	case $result in LIVES*) lived=$((lived + 1)) ;; esac
	printf '  %-44s %s\n' "$1" "${result:0:150}"
	cp saved "$2"
	touch "$2"
}

# mutant NAME FILE SED-EXPRESSION [OPTION...]: the options are edit-sim's, for what drawn worlds hardly ever meet
mutant() {
	local name=$1 file=$2 expression=$3
	shift 3
	[[ $name =~ $names ]] || return 0
	plant "$file" "$expression" build/edit-sim
	if [ -n "$result" ]; then
		:
	elif timeout 600 build/edit-sim --seeds "$seeds" "$@" >out.txt 2>&1; then
		result="LIVES after $seeds seeds"
	else
		result=$(sed -nE 's/^sim: FAILED seed=([0-9]+) [^:]*: (.*)/caught by seed \1: \2/p' out.txt | head -1)
		[ -n "$result" ] || result="LIVES: stopped without a verdict: $(tail -1 out.txt)"
	fi
	tell "$name" "$file"
}

# mutant_of_test NAME FILE SED-EXPRESSION TEST
mutant_of_test() {
	[[ $1 =~ $names ]] || return 0
	plant "$2" "$3" "build/tests/$4"
	if [ -n "$result" ]; then
		:
	elif timeout 600 "build/tests/$4" >out.txt 2>&1; then
		result="LIVES after $4"
	else
		result="caught by $4: $(sed -nE 's/^\[  FAILED  \] ([a-z_]+)$/\1/p' out.txt | head -1)"
	fi
	tell "$1" "$2"
}

# ---- Numbers ----
mutant "pseudo-gradient with the wrong sign" core/vec.c 's/^(\t+)a -= t;/\1a = t - a;/'
mutant "0 x NaN is multiplied" core/vec.c 's/if \(weight == 0\.0f\)/if (false)/'
mutant "own part added without its weight" core/vec.c 's/sum \+= block \* weight;/sum += block;/'
mutant "detector judges twice" core/round.c \
	's/layer->detector = layer->next;/{ double z; penalty_judge(\&layer->next, \&sync->settings, sync_record_at(sync, layer->round + 1, index, sync->rank)->norm, \&layer->detector, \&z); }/'
mutant "detector takes in its outliers" core/penalty.c 's/if \(verdict == VERDICT_ACCEPTED\)$/if (verdict != VERDICT_NONFINITE)/'
mutant "detector outlives its interval" core/penalty.c 's/detector->interval == interval \? /true ? /'
mutant "a NaN norm passes the test" core/penalty.c 's/if \(!isfinite\(norm\)\)/if (norm > 1e308)/'
mutant "the threshold is never reached" core/penalty.c 's/if \(z > settings/if (z > 1e30 * settings/'
mutant "weights are not divided by their sum" core/penalty.c 's/ret_weights\[i\] \/= sum;/ret_weights[i] *= 1.0;/'
mutant "mean divided by all, not by the accepted" core/penalty.c \
	's/verdicts\[i\] == VERDICT_ACCEPTED \? factors/verdicts[i] != VERDICT_NONFINITE ? factors/'
mutant "momentum without Nesterov" core/outer.c 's/rate \* \(g \+ factor \* v\)/rate * v/'
mutant "the mean is not clipped" core/outer.c 's/return scale < 1\.0 \? scale : 1\.0;/return scale * 0.0 + 1.0;/'
mutant "each clips by its own shard's norm" core/ring.c 's/sum \+= pass->square\[shard\];/sum += shard == pass->rank ? pass->square[shard] : 0.0;/'
mutant "theta keeps its outlier" core/part.c 's/^(\t)memcpy\(memory->theta, memory->anchor, bytes\);/\1if (!layer->rejected) memcpy(memory->theta, memory->anchor, bytes);/'

# ---- Methods ----
mutant "a late member's base moves on" core/part.c 's/if \(sync->late \&\& sync->stale == 0\)/if (sync->late)/'
mutant "the snapshot is not subtracted" core/vec.c 's/x\[i\] \+= to\[i\] - from\[i\];/x[i] += to[i];/'
mutant "the mean gradient is divided by all members" core/round.c \
	's/^(\tlayer->times_us\[0\] = )/\tfor (uint32_t r = 0; sync->gradients \&\& r < sync->count; r++) weights[r] = weights[r] > 0 ? 1.0 \/ sync->count : 0;\n\1/'
mutant "the anchor is copied in a realigned round" core/part.c 's/if \(!is_realigned\(sync, index\)\)/if (true)/'
mutant "no alignment before gradients" core/part.c 's/sync->next_aligns = wanted \&\& \(.*/sync->next_aligns = false;/'
mutant "no alignment after a worker's death" core/part.c 's/\(!part_is_equal\(sync\) \|\| is_realigned\)/!part_is_equal(sync)/'
mutant "who was left out behind its steps goes on" core/part.c 's/^(\tif \()(sync->state\[index\]\.rejected\))/\1false \&\& \2/'
mutant "one late too often keeps its theta" core/part.c 's/\(sync->lost \|\| is_too_stale\)/sync->lost/'
mutant "late before more than half have offered" core/part.c 's/return 2 \* offered > sync->count;/return offered > 0;/'

# ---- Ring ----
mutant "shards off by one" core/layer.h 's/shard < size % count \? 1 : 0/shard <= size % count ? 1 : 0/'
mutant "half of a shard counts for the norm" core/ring.c 's/begin, pass->reduced\[pass->rank\]\)/begin, pass->reduced[pass->rank] \/ 2)/'
mutant "sums start at another rank's shard" core/ring.c 's/uint32_t first = ring_left\(pass->rank, pass->count\);/uint32_t first = pass->rank;/'
mutant "nothing is ever sent again" core/link.c 's/link->cursor = link->acknowledged;/;/'
mutant "frames are taken in any order" core/link.c 's/if \(sequence != link->expected\) \{/if (sequence < link->expected) {/'
mutant "repeated frames are taken" core/link.c 's/if \(sequence != link->expected\) \{/if (sequence > link->expected) {/'
mutant "acknowledges one frame too many" core/link.c 's/\*ret_received = link->expected;/*ret_received = link->expected + 1;/'
mutant "buffers are reused while still to be sent" core/round.c 's/sync->link->acknowledged >= buffer->free_after\[0\]/true/'

# ---- Rounds, changes, members ----
mutant "settings change in mid-round" core/round.c 's/sync->next_settings\.value\[setting\] = /sync->settings.value[setting] = sync->next_settings.value[setting] = /'
mutant "a change is taken without agreement" core/round.c 's/is_agreed &= record->change == digest;/;/'
mutant "a bound change is taken a round early" core/proposal.c 's/proposal->change\.at_round != round\)/proposal->change.at_round != round + 1)/'
mutant "pause is forgotten by rank 1" core/round.c 's/sync->paused = (sync->resume_round <= sync->round);/sync->paused = sync->rank != 1 \&\& \1;/'
mutant "checkpoint one round late on rank 0" core/round.c 's/if \(sync->checkpoint_round == sync->round\)/if (sync->checkpoint_round + (sync->rank == 0) == sync->round)/'
mutant "a layer is committed before the mean is whole" core/ring.c 's/return pass->finished == pass->size;/return pass->finished * 2 >= pass->size;/'
mutant "a silent neighbour is not noticed" core/view.c 's/now_us - neighbour->heard_us < view->silence_us\)/true)/'
mutant "theta is touched while the ring has it" core/round.c 's/^(\tlayer->phase = LAYER_SCALARS;)/\1 if (sync->layers[index].size > 0) sync->layers[index].theta[0] += 1.0f;/'
mutant "records pass a member that is still gathering" core/node.c 's/if \(\(!node->complete.*\|\| is_full\)/if (is_full)/' --faults restart,cut,loss,jitter --peers 3
mutant "changes wait in a ring that is not complete" core/node.c 's/node->complete \&\& sync->is_ready \? sync_propose/true ? sync_propose/'
mutant "a restarted member is let in again" core/view.c 's/if \(neighbour->incarnation != 0 \&\& view->complete\)/if (false)/'
mutant "rolls are not said again" core/circle.c 's/if \(circle->view\.rolled\[rank\]\)/if (false)/'

# ---- Meshes and rings of rings ----
mutant "the norm is that of the own piece" core/round.c 's/sqrt\(row_sum\(row, SCALAR_NORM, index, round\)\)/sqrt(own->value)/'
mutant "the mean's norm is that of the own piece" core/round.c \
	's/row_sum\(&sync->row, SCALAR_MEAN, index, buffer->round\)/row_at(\&sync->row, SCALAR_MEAN, index, buffer->round, sync->row.rank)->value/'
mutant "a node is late by itself" core/part.c 's/is_late \|= scalar->verdict/is_late |= column == row->rank \&\& scalar->verdict/'
mutant "a change that the row does not hold counts" core/round.c 's/->word != own->word\)/->word != own->word \&\& false)/'
mutant "a resume that comes early is forgotten" core/round.c 's/sync->paused = sync->resume_round <= sync->round;/sync->paused = true;/'
mutant "a gradient that comes early is forgotten" core/part.c 's/layer->early = true;/layer->early = false;/'
mutant "an offer does not ask the row" core/part.c 's/if \(!row_is_whole\(row, SCALAR_ROUND, 0, round\)\)/if (!row_has_told(row, SCALAR_ROUND, 0, round))/'
mutant "the own shard does not go across" core/ring.c 's/if \(pass->state == RING_GATED\)/if (false)/'
mutant "what comes across early is forgotten" core/ring.c 's/vec_accumulate\(buffer \+ begin, stash \+ begin, 1, count\);/;/'
mutant "records stay in their group" core/sync.c 's/if \(sync->group_count > 1 && ring_right\(group/if (false \&\& ring_right(group/'

# ---- From view to view ----
views="--faults views,loss,jitter,slow,nan,poison,change,death,cut"
mutant "a round that is done again is judged twice" core/round.c \
	's/penalty_begin\(&layer->detector, /penalty_begin(layer->judged_in != 0 ? \&layer->next : \&layer->detector, /'
mutant "heal overwrites a detector" core/heal.c 's/^(\tlayer->judged_in = 0;)$/\1 layer->detector = (struct detector){0};/'
mutant "a round that was fetched is not judged" core/heal.c 's/if \(layer->fetch_commits\)$/if (false)/'
mutant "a layer is done again although committed" core/plan.c 's/a->round > b->round \? 1 : -1;/a->round > b->round ? -1 : 1;/'
mutant "the plan follows whoever is furthest behind" core/plan.c 's/return a->since > b->since;/return a->since < b->since;/'
mutant "a joiner's garbage is averaged" core/part.c 's/if \(sync->late \|\| sync->resets\)$/if (sync->late)/'
mutant "a joiner gets its garbage back" core/part.h 's/return sync->gradients \&\& !sync->joins \&\& /return sync->gradients \&\& /' $views
mutant_of_test "whoever was left out goes on" core/plan.c 's/sync->is_outdated \|= !goes_on\(sync, leader\);/;/' test_node_views
mutant "frames of another view are taken" core/circle.c 's/is_of_view = message->view == circle->view_number;/is_of_view = true;/'
mutant_of_test "a place is taken before its layers are held" core/standing.c 's/ \&\& is_whole\(sync\)\)/)/' test_heal
mutant_of_test "a place is taken only when all hold the same" core/standing.c 's/ \&\& is_whole\(sync\)\)/ \&\& sync->unequal_count == 0)/' test_heal
mutant_of_test "theta counts from an anchor that was wrong" core/standing.c 's/else if \(layer->is_replaced\)/else if (false)/' test_heal
mutant_of_test "layers are fetched that are held" core/heal.c 's/if \(heal_is_whole\(sync, theirs\) \|\| /if (/' test_heal

# ---- Workers that outlive their daemon ----
mutant_of_test "theta beside a torn layer counts" core/sync.c 's/sync->lost \|= layer->is_nothing;/;/' test_node_survivors
mutant "a gradient that comes too late stays" core/part.c 's/if \(sync->refuses \|\| is_done\)/if (sync->refuses)/' $views
mutant_of_test "a gradient that comes after its round stays" core/part.c 's/sync->refuses \|= part_holds_gradients\(sync\);/;/' test_part_gradients
mutant "gradients wait for a round of parameters" core/part.c \
	's/if \(sync->waiting && sync->waiting_offer\.gradients && !is_of_gradients\(sync\)\)/if (false)/' $views
mutant "theta is brought to a round of gradients" core/part.c 's/bool is_unlike = is_of/bool is_unlike = sync->lost \&\& is_of/' $views
mutant "the last offer is heard by nobody" core/part.c 's/bool is_unheard = /bool is_unheard = false \&\& /' $views
mutant "what comes next is told before the offer only" core/part.c 's/sync->must_tell = sync->has_agreed;/;/' $views
mutant "whoever comes back takes any round for its own" core/standing.c 's/^\tlook_at_round\(sync, &gradients\);/;/' $views
mutant_of_test "the next round is told before this one" core/part.c 's/if \(sync->has_agreed && !sync->offered && !sync->waiting && /if (false \&\& /' test_node_survivors
mutant_of_test "what came early is taken by another round" core/part.c 's/if \(sync->waiting\)$/if (false)/' test_part_gradients
mutant_of_test "a run that has ended takes no offer of one that goes on" core/part.c 's/sync->finished && sync->is_ready;/sync->finished;/' test_node_survivors
mutant "each steps at a learning rate of its own" core/part.c 's/ACTION_STEP\)->number = furthest;/ACTION_STEP)->number = records[sync->rank].step;/'
mutant_of_test "a round that was rolled back is forgotten" core/sync.c 's/layer->is_rolled_back = config->/layer->is_rolled_back = false \&\& config->/' test_node_survivors
mutant_of_test "who brings nothing has done no steps" core/round.c 's/\.step = sync->step,/.step = sync->offer.step,/' test_part_gradients

# ---- Collectives, which the simulator's workers have no use for ----
mutant_of_test "a collective begins before its memory is free" core/collective.c 's/&& is_under_way\(all, other\)/\&\& false/' test_collective
mutant_of_test "a gradient goes back while still to be sent" core/collective.c 's/all->link->acknowledged >= own->free_after\)/true)/' test_collective
mutant_of_test "memory is free while still to be sent" core/collective.c 's/all->link->acknowledged < own->free_after/false/' test_collective
mutant_of_test "a node with its own sum passes no others on" core/ring.c \
	's/if \(pass->reduced\[shard\] < ring_shard/if (shard == pass->rank \&\& pass->reduced[shard] < ring_shard/' test_ring
mutant_of_test "gradients are summed, not averaged" core/collective.c 's/1\.0F \/ \(float\)all->count/1.0F/' test_collective
mutant_of_test "who has begun does not say so" core/circle.c 's/ \|\| circle->told_collectives < circle->collectives//' test_collective
mutant_of_test "a sum begins with the own part" core/row.c \
	's/sum \+= cell\(row, kind, layer_index, number, rank\)/sum += cell(row, kind, layer_index, number, (row->rank + rank) % row->count)/' test_collective
mutant_of_test "each offers when its own worker wants to" core/sync.c 's/(wants_offer \|= )(row_at.*SCALAR_STEP)/\1column == row->rank \&\& \2/' test_collective
mutant_of_test "a chunk is sent before the neighbour has begun" core/collective.c 's/u64_min\(all->begun, right_begun\)/all->begun/' test_collective

# ---- Councils, which have simulated worlds of their own ----
mutant_of_test "a promise is said before the disk has it" core/council.c \
	's/councillor_owe\(council, COUNCIL_DEBT_PROMISE, from, decree->relay, actions\);/{ struct decree said; say_promise(council, \&said); councillor_answer(council, decree, \&said, actions); }/' test_council
mutant_of_test "a vote is said before the disk has it" core/council.c \
	's/councillor_owe\(council, COUNCIL_DEBT_ACCEPTED, from, decree->relay, actions\);/{ struct decree said; say_accepted(council, \&said); councillor_answer(council, decree, \&said, actions); }/' test_council
mutant_of_test "a quorum lacks one vote" core/roster.c 's/2 \* votes > roster->count/2 * (votes + 1) > roster->count/' test_council
mutant_of_test "any half is a quorum" core/roster.c 's/ \&\& has\[roster->holder\]\)/)/' test_council
mutant_of_test "what was accepted is not adopted" core/proposer.c 's/if \(decree->accepted_ballot > council->best_ballot\)/if (false)/' test_council_seeds
mutant_of_test "the last told of is adopted" core/proposer.c 's/decree->accepted_ballot > council->best_ballot/decree->accepted_ballot != 0/' test_council_seeds
mutant_of_test "answers of an old view count" core/council.c 's/\} else if \(decree->view == number\) \{/} else {/' test_council_seeds
mutant_of_test "votes below a promise" core/vote.c 's/^\tif \(ballot < vote->promised\)/\tif (ballot < vote->accepted_ballot)/' test_council_seeds
mutant_of_test "who has lost its disk votes" core/councillor.c 's/roster->seats\[rank\]\.disk == self->disk/true/' test_council_seeds
mutant_of_test "a new start has no vote in its old seat" core/councillor.c 's/bool is_voter = is_in \|\|/bool is_voter = is_in; (void)/' test_council
mutant_of_test "a joiner tells of a disk without a file" core/council.c 's/council->wants_in \&\& !council->is_on_disk/false/' test_council_seeds
mutant_of_test "a view is not asked for" core/council.c 's/councillor_tell\(council, neighbours\[council->turn\+\+ % count\], \&decree, actions\);/council->turn++;/' test_council
mutant_of_test "nobody passes on" core/councillor.c 's/council->doubts\[rank\]\.is_held \? next_relay/false ? next_relay/' test_council
mutant_of_test "neighbours that do not hear each other stay so" core/seating.c 's/(place, neighbours\);)$/\1 count = 0;/' test_council
mutant_of_test "the tie-holder is dropped" core/seating.c 's/table->candidates\[i - 1\]\.rank == table->seating->now->holder \|\| //' test_council_input

echo "mutants: $lived lived"
[ "$lived" = 0 ]
