/* Model of how the next view is decided: the acceptor's rules of core/vote.c and the proposer's of core/proposer.c.
 *
 * Two proposers, of ballots that differ, among MEMBERS acceptors. Messages are kept for ever and may be taken by anybody at any
 * time, any number of times or never: that is loss, delay, repetition and reordering in one. An acceptor may die at any moment;
 * what it says is what its disk holds, and that is all that it knows after its next start. A proposer may stop at any moment.
 *
 * Claim: at most one value is chosen. A value is chosen when a quorum has accepted it under one ballot, whoever knows.
 *
 * tests/test_views.py searches all states. MEMBERS and BALLOTS set the size; each FAULT_... plants a fault that must be found:
 *
 * FAULT_MEMORY  a promise is said before the disk has it
 * FAULT_TIE     half of the members are a quorum, whoever they are
 * FAULT_ADOPT   a proposer does not look at what was accepted before
 * FAULT_LOW     an acceptor accepts below what it has promised */

#ifndef MEMBERS
#define MEMBERS 3
#endif
#ifndef BALLOTS
#define BALLOTS 4 /* 0 is none; then the two proposers' in turn */
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define HOLDER 0

/* On disk, by member. */
byte promised[MEMBERS], accepted[MEMBERS];
#ifdef FAULT_MEMORY
byte remembered[MEMBERS]; /* promised, in memory alone */
#endif
byte deaths;

/* Messages that were ever sent, a bit for each member or ballot. */
byte prepare;               /* by ballot */
byte proposal[BALLOTS];     /* by ballot: 0: not sent, otherwise the value */
byte promise[BALLOTS];      /* by ballot, bit of the member */
byte told[BALLOTS * MEMBERS]; /* by ballot and member: what it had accepted, as a ballot */
byte vote[BALLOTS];         /* by ballot, bit of the member: accepted */
byte chosen;                /* value; 0: none */

#define BIT(x) (1 << (x))
#define HAS(set, x) (((set) >> (x)) & 1)
#if MEMBERS == 4
#define COUNT(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2) + HAS(set, 3))
#else
#define COUNT(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2))
#endif
#ifdef FAULT_TIE
#define QUORUM(set) (2 * COUNT(set) >= MEMBERS)
#else
#define QUORUM(set) (2 * COUNT(set) > MEMBERS || (2 * COUNT(set) == MEMBERS && HAS(set, HOLDER)))
#endif
#ifdef FAULT_MEMORY
#define PROMISED(m) remembered[m]
#else
#define PROMISED(m) promised[m]
#endif

/* One member takes one message that was ever sent. */
proctype acceptor(byte me)
{
	byte b;
end:	do
	:: d_step {
		deaths < DEATHS ->
		deaths++;
#ifdef FAULT_MEMORY
		remembered[me] = promised[me];
#endif
	}
	:: atomic {
		select (b : 1 .. BALLOTS - 1);
		if
		:: HAS(prepare, b) && b > PROMISED(me) ->
#ifdef FAULT_MEMORY
			remembered[me] = b;
#else
			promised[me] = b;
#endif
			told[b * MEMBERS + me] = accepted[me];
			promise[b] = promise[b] | BIT(me)
#ifdef FAULT_LOW
		:: proposal[b] != 0 && b != accepted[me] ->
#else
		:: proposal[b] != 0 && b >= PROMISED(me) && b != accepted[me] ->
#endif
			promised[me] = b;
#ifdef FAULT_MEMORY
			remembered[me] = b;
#endif
			accepted[me] = b;
			vote[b] = vote[b] | BIT(me);
			if
			:: QUORUM(vote[b]) ->
				assert(chosen == 0 || chosen == proposal[b]);
				chosen = proposal[b]
			:: else
			fi
		:: else -> b = 0
		fi;
		b = 0
	}
	od
}

/* Tries its ballots one after the other; each with the value of the highest ballot that a quorum tells of, otherwise with
 * its own. */
proctype proposer(byte me)
{
	byte b = 1 + me, m, best;
	do
	:: b < BALLOTS ->
		prepare = prepare | BIT(b);
		if
		:: atomic {
			QUORUM(promise[b]) ->
			best = 0;
#ifndef FAULT_ADOPT
			m = 0;
			do
			:: m < MEMBERS ->
				if
				:: HAS(promise[b], m) && told[b * MEMBERS + m] > best -> best = told[b * MEMBERS + m]
				:: else
				fi;
				m++
			:: else -> break
			od;
			m = 0;
#endif
			if
			:: best != 0 -> proposal[b] = proposal[best]
			:: else -> proposal[b] = 1 + me
			fi;
			best = 0
		}
		:: true /* it waits no longer */
		fi;
		b = b + 2
	:: else -> break
	od
}

init {
	atomic {
		run proposer(0);
		run proposer(1);
		run acceptor(0);
		run acceptor(1);
		run acceptor(2);
#if MEMBERS == 4
		run acceptor(3);
#endif
	}
}
