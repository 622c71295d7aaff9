/* The parts of a daemon put together, and the turn of its loop. Owns everything; decides nothing about rounds. */

#include "daemon/daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/advice.h"
#include "daemon/control.h"
#include "daemon/handover.h"
#include "daemon/entry.h"
#include "daemon/log.h"
#include "daemon/rounds.h"

enum {
	MESSAGES_PER_TURN = 32, /* chunks of up to wire.chunk bytes: the worker shall not wait behind many */
	BELLS_PER_TURN = 64,
	REQUESTS_PER_TURN = 16,
	STATUS_US = 1000000,       /* the status line is made anew so often */
	STRANGERS_US = 10 * 1000 * 1000, /* frames of strangers are told so often at most */
	WAIT_MAX_US = 1000000
};

static uint64_t clock_us(void)
{
	struct timespec now;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- What it says of itself ---- */

const char *daemon_degraded(const struct daemon *daemon)
{
	if (daemon->driver.damage[0])
		return daemon->driver.damage;
	if (daemon->health.lost[0])
		return daemon->health.lost;
	if (daemon->lost_worker[0])
		return daemon->lost_worker;
	if (daemon->recovery.failure[0])
		return daemon->recovery.failure;
	if (daemon->driver.missing[0])
		return daemon->driver.missing;
	if (daemon->membership.trouble[0])
		return daemon->membership.trouble;
	if (daemon->health.keys[0])
		return daemon->health.keys;
	if (daemon->checkpoint.degraded[0])
		return daemon->checkpoint.degraded;
	return daemon->refused_worker[0] ? daemon->refused_worker : daemon->health.crowded;
}

void daemon_status_text(const struct daemon *daemon, char *text, size_t size)
{
	const struct driver *driver = &daemon->driver;
	char *const *names = daemon->config.names;
	if (daemon->is_stopping) {
		snprintf(text, size, "stopping");
		return;
	}
	if (recovery_is_waiting(&daemon->recovery)) {
		uint32_t rank = consent_waits_for(&daemon->recovery.consent);
		snprintf(text, size, "no run yet: agrees on a checkpoint%s%s", rank == UINT32_MAX ? "" : ", waiting for ",
			 rank == UINT32_MAX ? "" : names[rank]);
		return;
	}
	if (entry_status_text(daemon, text, size))
		return;
	if (!driver->node) {
		snprintf(text, size, "no run yet: waiting for a worker at %s", daemon->port.path);
		return;
	}
	struct node_status status;
	struct round_sum sum;
	node_status(driver->node, daemon->now_us, &status);
	rounds_sum(driver->node, daemon->config.replicas, daemon->run.description.layer_count, &sum);
	const char *who = status.waiting_for < daemon->config.member_count ? names[status.waiting_for] : NULL;
	const char *worker = daemon->port.phase == PORT_READY ? "" : ", no worker";
	const char *degraded = daemon_degraded(daemon)[0] ? ", degraded" : "";
	if (daemon->lost_worker[0])
		snprintf(text, size, "stands still after round %" PRIu64 "; the worker is gone", status.round);
	else if (status.phase == NODE_GATHERING)
		snprintf(text, size, "gathering the ring%s%s%s%s", who ? ", waiting for " : "", who ? who : "", worker,
			 degraded);
	else if (status.phase == NODE_FINISHED)
		snprintf(text, size, "finished after round %" PRIu64 "%s", status.round, degraded);
	else if (status.stalled_us > 0)
		snprintf(text, size, "round %" PRIu64 " stalled for %.0f s%s%s%s%s", status.round + 1,
			 (double)status.stalled_us / 1e6, who ? ", waiting for " : "", who ? who : "", worker,
			 degraded);
	else if (status.round == 0)
		snprintf(text, size, "%s, no round done%s%s", status.phase == NODE_PAUSED ? "paused" : "training", worker,
			 degraded);
	else
		snprintf(text, size, "%s, %" PRIu64 " rounds done, loss %.4f%s%s",
			 status.phase == NODE_PAUSED ? "paused" : "training", status.round, sum.loss, worker, degraded);
}

/* Frames that nobody asked for are told now and then, in one line. */
static void tell_strangers(struct daemon *daemon)
{
	struct transport_counts counts;
	transport_counts(daemon->transport, &counts);
	uint64_t all = counts.stranger_frames + counts.malformed_frames + control_malformed(daemon->control);
	if (all == daemon->strangers_told || daemon->now_us - daemon->strangers_told_us < STRANGERS_US)
		return;
	log_line(LEVEL_WARNING, "dropped so far: frames from strangers %" PRIu64 ", malformed frames %" PRIu64
		 ", malformed requests %" PRIu64, counts.stranger_frames, counts.malformed_frames,
		 control_malformed(daemon->control));
	daemon->strangers_told = all;
	daemon->strangers_told_us = daemon->now_us;
}

/* Once for as long as it holds. The worker that died here has been told of already. */
static void tell_advice(struct daemon *daemon)
{
	char text[LINE_BYTES];
	bool is_urgent = advice_text(daemon, text, sizeof text);
	if (daemon->lost_worker[0] || (text[0] && !is_urgent) || strcmp(text, daemon->advised) == 0)
		return;
	if (text[0])
		log_line(LEVEL_WARNING, "%s", text);
	snprintf(daemon->advised, sizeof daemon->advised, "%s", text);
}

/* ---- The worker ---- */

static void refuse_worker(struct daemon *daemon, const struct line *why)
{
	log_line(LEVEL_ERROR, "worker (pid %ld) refused: %s", (long)daemon->port.pid, why->text);
	snprintf(daemon->refused_worker, sizeof daemon->refused_worker, "worker refused: %.400s", why->text);
	worker_port_refuse(&daemon->port, why->text);
}

static void attach_worker(struct daemon *daemon)
{
	struct line why = {""};
	struct worker_port *port = &daemon->port;
	struct run *run = &daemon->run;
	/* Until it is known which checkpoint the run goes on from, the worker waits for an answer. */
	if (recovery_is_waiting(&daemon->recovery))
		return;
	snprintf(run->source.folder, sizeof run->source.folder, "%s", daemon->recovery.folder);
	run->source.round = daemon->recovery.chosen.round;
	if (run_attach(run, port->description, port->description_bytes, &why) != 0) {
		refuse_worker(daemon, &why);
		return;
	}
	daemon->refused_worker[0] = 0;
	worker_port_admit(port, run->segment.mapping.fd, run->segment.mapping.size_bytes, run->is_resumed);
	log_line(LEVEL_NOTICE, "worker (pid %ld) attached, %zu layers, %" PRIu64 " parameters%s", (long)port->pid,
		 run->description.layer_count, run->description.size, run->is_resumed ? ", resumes" : "");
	if (run->is_restored && !run->is_begun)
		log_line(LEVEL_NOTICE, "run restored after round %" PRIu64 " from %s", run->source.round, run->source.folder);
}

/* A run that begins anew beside checkpoints: what was in runtime_dir may have been lost with the power. */
static void tell_checkpoint(const struct daemon *daemon)
{
	if (daemon->checkpoint.newest[0] && !daemon->run.is_found)
		log_line(LEVEL_WARNING,
			 "the run begins anew, not from the checkpoint %s; to go on from it, give it to the workers as their model",
			 daemon->checkpoint.newest);
}

static void start_worker(struct daemon *daemon)
{
	struct line why = {""};
	bool is_first = !daemon->driver.node;
	int error = run_begin(&daemon->run, daemon->incarnation, &why);
	if (!error)
		error = entry_ready(daemon, &why);
	if (error) {
		refuse_worker(daemon, &why);
		return;
	}
	if (is_first)
		tell_checkpoint(daemon);
	if (daemon->had_worker)
		driver_count_restart(&daemon->driver);
	daemon->had_worker = true;
	log_line(LEVEL_NOTICE, "worker (pid %ld) ready at step %" PRIu64 ", round %" PRIu64, (long)daemon->port.pid,
		 atomic_load(&daemon->run.segment.header->step), daemon->driver.record.round);
	/* What its forerunner offered before it died, or before the daemon did, still holds. */
	handover_offer(&daemon->driver, daemon->now_us);
}

static void restore_layer(struct daemon *daemon, uint64_t layer_index)
{
	if (!run_restore(&daemon->run, layer_index)) {
		log_line(LEVEL_WARNING, "worker (pid %ld): layer %" PRIu64 " is not torn, not restored",
			 (long)daemon->port.pid, layer_index);
		return;
	}
	log_line(LEVEL_WARNING, "layer %" PRIu64 ": torn when its worker died, begins again from the anchor",
		 layer_index);
	worker_port_ring(&daemon->port);
}

/* What it had offered may still become a round, so the number is not for good. */
static void put_lost_worker(struct daemon *daemon)
{
	snprintf(daemon->lost_worker, sizeof daemon->lost_worker,
		 "the worker is gone, and a mesh cannot go on without it: " ADVICE_RESTART ", they go on from round %" PRIu64,
		 daemon->driver.record.round);
}

/* The other nodes of the replica are in the middle of a step that this one cannot take part in any more. */
static void lose_mate(struct daemon *daemon)
{
	if (daemon->config.shards == 1 || !daemon->driver.node || daemon->worker_has_finished || daemon->lost_worker[0])
		return;
	struct node_status status;
	node_status(daemon->driver.node, daemon->now_us, &status);
	if (status.phase == NODE_FINISHED)
		return;
	put_lost_worker(daemon);
	log_line(LEVEL_ERROR, "%s", daemon->lost_worker);
}

/* False: nothing more to read for now. */
static bool serve_worker(struct daemon *daemon)
{
	uint64_t value = 0;
	struct line why = {""};
	switch (worker_port_next(&daemon->port, daemon->now_us, &value, &why)) {
	case PORT_NOTHING: return false;
	case PORT_HAS_DESCRIPTION: attach_worker(daemon); break;
	case PORT_IS_READY: start_worker(daemon); break;
	case PORT_OFFERS:
		if (daemon->port.phase == PORT_READY)
			handover_offer(&daemon->driver, daemon->now_us);
		break;
	case PORT_GRADIENTS:
		if (daemon->port.phase == PORT_READY)
			handover_gradients(&daemon->driver, daemon->now_us);
		break;
	case PORT_CALLS: break; /* looked at in every turn: some may have to wait */
	case PORT_WANTS: handover_want(&daemon->driver, value, daemon->now_us); break;
	case PORT_RESTORES: restore_layer(daemon, value); break;
	case PORT_FINISHES:
		daemon->worker_has_finished = true;
		log_line(LEVEL_NOTICE, "worker (pid %ld) has finished", (long)daemon->port.pid);
		break;
	case PORT_LOST:
		log_line(LEVEL_WARNING, "worker (pid %ld) is gone%s%s%s", (long)daemon->port.pid,
			 why.text[0] ? " (" : "", why.text, why.text[0] ? ")" : "");
		handover_lose_worker(&daemon->driver, daemon->now_us);
		lose_mate(daemon);
		break;
	}
	return true;
}

/* ---- A turn ---- */

/* Hellos of members whose memory is gone are not the node's. */
static bool hear_recovery(struct daemon *daemon, const struct message *message)
{
	const struct driver *driver = &daemon->driver;
	struct consent_entry memory = {0, 0};
	if (driver->node)
		memory = (struct consent_entry){driver->record.round,
						daemon->config.shards == 1 ? state_anchor_hash(&daemon->run.state) : 0};
	if (driver->node && driver->record.round == 0)
		memory.hash = 0; /* the begin is that of the workers' parameters */
	return recovery_hear(&daemon->recovery, message, driver->node ? &memory : NULL, daemon->now_us);
}

static void watch_recovery(struct daemon *daemon)
{
	daemon->recovery_at_us = recovery_tick(&daemon->recovery, daemon->now_us);
	if (!recovery_is_waiting(&daemon->recovery) && daemon->port.phase == PORT_DESCRIBED)
		attach_worker(daemon);
}

static void take_messages(struct daemon *daemon)
{
	struct message message;
	unsigned budget = MESSAGES_PER_TURN;
	while (transport_receive(daemon->transport, daemon->now_us, &budget, &message))
		if (message.kind == MESSAGE_DECREE)
			membership_hear(&daemon->membership, message.decree, daemon->driver.node, daemon->now_us);
		else if (!hear_recovery(daemon, &message))
			driver_message(&daemon->driver, &message, daemon->now_us);
}

static void write_checkpoint(struct daemon *daemon)
{
	struct checkpoint *checkpoint = &daemon->checkpoint;
	if (!checkpoint->is_busy)
		return;
	uint64_t round = checkpoint->round;
	switch (checkpoint_step(checkpoint)) {
	case CHECKPOINT_GOES_ON: return;
	case CHECKPOINT_WRITTEN:
		log_line(LEVEL_NOTICE, "checkpoint of round %" PRIu64 ": %s", round, checkpoint->newest);
		changes_written(&daemon->driver.changes, round, checkpoint->newest);
		return;
	case CHECKPOINT_FAILED:
		log_line(LEVEL_WARNING, "%s", checkpoint->degraded);
		changes_failed(&daemon->driver.changes, round, checkpoint->degraded);
		return;
	}
}

/* Keys may be replaced, given and taken away while it runs, all but the own one; those that are refused leave all as it was. */
static void reload_keys(struct daemon *daemon)
{
	struct line why = {""};
	struct keyring keyring;
	int error = keyring_open(&daemon->config, &keyring, &why);
	if (!error && strcmp(keyring.secret_key, daemon->keyring.secret_key) != 0) {
		keyring_close(&keyring);
		error = line_fail(&why, EDIT_ERROR_REFUSED, "the secret key of this node is another one, which takes a restart");
	}
	if (error) {
		log_line(LEVEL_ERROR, "keys not read again (SIGHUP): %s", why.text);
		return;
	}
	keyring_close(&daemon->keyring);
	daemon->keyring = keyring;
	transport_rekey(daemon->transport);
	log_line(LEVEL_NOTICE, "keys read again (SIGHUP): %zu of members, %zu of clients", keyring.member_count,
		 keyring.client_count);
}

/* SIGTERM and SIGINT stop the daemon, SIGHUP has the keys read again: settings of the ring are changed by editctl, those of
 * the node by a restart. */
static void take_signals(struct daemon *daemon)
{
	struct signalfd_siginfo info;
	while (read(daemon->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
		if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) {
			log_line(LEVEL_NOTICE, "stopping (%s)", info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT");
			daemon->is_stopping = true;
		} else if (info.ssi_signo == SIGHUP) {
			reload_keys(daemon);
		}
}

/* How long the loop may sleep. */
static long timeout_ms(struct daemon *daemon)
{
	if (daemon->checkpoint.is_busy)
		return 0;
	uint64_t now_us = clock_us();
	uint64_t at_us = u64_min(driver_deadline(&daemon->driver), now_us + WAIT_MAX_US);
	at_us = u64_min(at_us, notify_alive(&daemon->notify, now_us));
	at_us = u64_min(at_us, u64_min(daemon->status_at_us, daemon->recovery_at_us));
	at_us = u64_min(at_us, membership_deadline(&daemon->membership));
	return at_us <= now_us ? 0 : (long)((at_us - now_us + 999) / 1000);
}

bool daemon_turn(struct daemon *daemon)
{
	enum { SIGNALS, ADMISSION, FIXED };
	struct transport_source sources[FIXED + CONTROL_DOORS_MAX + 1] = {
		[SIGNALS] = {.fd = daemon->signal_fd},
		[ADMISSION] = {.fd = daemon->port.listen_fd},
	};
	size_t count = FIXED + control_sources(daemon->control, &sources[FIXED]);
	if (daemon->port.fd >= 0)
		sources[count++].fd = daemon->port.fd;
	transport_wait(daemon->transport, sources, count, timeout_ms(daemon));
	daemon->now_us = clock_us();
	notify_alive(&daemon->notify, daemon->now_us);

	if (sources[SIGNALS].is_ready)
		take_signals(daemon);
	if (daemon->is_stopping)
		return false;
	transport_step(daemon->transport, daemon->now_us);
	take_messages(daemon);
	for (int i = 0; i < BELLS_PER_TURN && serve_worker(daemon); i++)
		;
	watch_recovery(daemon);
	if (sources[ADMISSION].is_ready)
		worker_port_accept(&daemon->port, daemon->now_us);
	handover_calls(&daemon->driver, daemon->now_us);
	driver_tick(&daemon->driver, daemon->now_us);
	entry_step(daemon);
	control_serve(daemon->control, daemon, REQUESTS_PER_TURN);
	write_checkpoint(daemon);
	if (daemon->now_us >= daemon->status_at_us) {
		char text[256];
		daemon_status_text(daemon, text, sizeof text);
		notify_status(&daemon->notify, text);
		tell_strangers(daemon);
		if (daemon->lost_worker[0])
			put_lost_worker(daemon);
		tell_advice(daemon);
		health_tick(&daemon->health, &daemon->config, &daemon->lock, daemon->driver.node != NULL,
			    daemon->transport, daemon->control, daemon->now_us);
		daemon->status_at_us = daemon->now_us + STATUS_US;
	}
	return true;
}

/* ---- Beginning and end ---- */

static int fail(int error, const char *text)
{
	log_line(LEVEL_ERROR, "%s", text);
	return error;
}

static int open_signals(struct daemon *daemon)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGPIPE);
	/* A file that may not grow is an error of the write, not the end of the training. */
	signal(SIGXFSZ, SIG_IGN);
	/* Blocked before ZeroMQ makes its thread, so that all signals come in through the descriptor. */
	sigprocmask(SIG_BLOCK, &set, NULL);
	daemon->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return daemon->signal_fd >= 0 ? 0 : fail(EDIT_ERROR_SYSTEM, "cannot take signals");
}

/* The lock of the runtime directory, then what dead daemons left in it. */
static int open_lock(struct daemon *daemon)
{
	char path[CONFIG_PATH_MAX];
	struct line line;
	pid_t holder = 0;
	const char *folder = config_text(&daemon->config, NODE_RUNTIME_DIR);
	if (mkdir(folder, 0751) != 0 && errno != EEXIST) {
		line_fail(&line, EDIT_ERROR_INVALID, "node.runtime_dir: %s cannot be made (%s)", folder,
			  strerror(errno));
		return fail(EDIT_ERROR_SYSTEM, line.text);
	}
	int error = lock_open(folder, &daemon->lock, &holder);
	if (error == EDIT_ERROR_BUSY)
		line_fail(&line, EDIT_ERROR_INVALID, "%s is in use by another editd (pid %ld)", folder, (long)holder);
	else if (error)
		line_fail(&line, EDIT_ERROR_INVALID, "%s: cannot be locked (%s)", folder, strerror(errno));
	if (error)
		return fail(EDIT_ERROR_SYSTEM, line.text);
	char read_path[CONFIG_PATH_MAX];
	const char *stale[] = {config_runtime_path(&daemon->config, "worker.sock", path, sizeof path),
			       config_runtime_path(&daemon->config, CONTROL_READ_SOCKET, read_path, sizeof read_path),
			       daemon->config.control + strlen("ipc://")};
	for (size_t i = 0; i < sizeof stale / sizeof *stale; i++) {
		error = lock_remove_stale(&daemon->lock, stale[i]);
		if (error) {
			line_fail(&line, EDIT_ERROR_INVALID, "%s: in the way (%s)", stale[i],
				  error == EDIT_ERROR_INVALID ? "not a socket" : strerror(errno));
			return fail(EDIT_ERROR_SYSTEM, line.text);
		}
	}
	return 0;
}

/* Two daemons with one vote file would have one vote, and take it for two. Where nothing can be written nobody has a vote. */
static int lock_state(struct daemon *daemon)
{
	struct line line;
	pid_t holder = 0;
	const char *folder = config_text(&daemon->config, NODE_STATE_DIR);
	/* It may be the runtime directory, too. */
	if (lock_open(folder, &daemon->state_lock, &holder) != EDIT_ERROR_BUSY || holder == getpid())
		return 0;
	line_fail(&line, EDIT_ERROR_INVALID, "node.state_dir: %s is in use by another editd (pid %ld); each node needs one of its own", folder,
		  (long)holder);
	return fail(EDIT_ERROR_SYSTEM, line.text);
}

/* Before the sockets: the disk knows better than the config who the neighbours are. */
static int open_membership(struct daemon *daemon)
{
	struct line why = {""};
	if (mkdir(config_text(&daemon->config, NODE_STATE_DIR), 0750) != 0 && errno != EEXIST)
		log_line(LEVEL_WARNING, "node.state_dir: %s cannot be made (%s); there will be no checkpoints, and this member has no vote",
			 config_text(&daemon->config, NODE_STATE_DIR), strerror(errno));
	int error = lock_state(daemon);
	if (error)
		return error;
	error = membership_open(&daemon->membership, &daemon->config, daemon->incarnation, &why);
	daemon->run.is_member = membership_waits(&daemon->membership);
	return error ? fail(error, why.text) : 0;
}

static int open_transport(struct daemon *daemon)
{
	char text[512];
	const struct config *config = &daemon->config;
	struct transport_config transport = {.listen = config->listen,
					     .shard_listen = config->shard_listen,
					     .name = config_text(config, NODE_NAME),
					     .view = entry_view(config),
					     .is_mesh = config->shards > 1,
					     .incarnation = daemon->incarnation,
					     .keyring = &daemon->keyring,
					     .is_encrypted = config->is_encrypted};
	int error = transport_open(&transport, &daemon->transport, text, sizeof text);
	daemon->membership.transport = daemon->transport;
	return error ? fail(error, text) : 0;
}

static int open_ports(struct daemon *daemon)
{
	char path[CONFIG_PATH_MAX];
	struct line why;
	int error = control_open(transport_context(daemon->transport), &daemon->config, &daemon->keyring, &daemon->control, &why);
	if (!error)
		error = worker_port_open(&daemon->port,
					 config_runtime_path(&daemon->config, "worker.sock", path, sizeof path), &why);
	return error ? fail(error, why.text) : 0;
}

static void tell_place(const struct config *config)
{
	char place[64] = "";
	if (config->shards > 1)
		snprintf(place, sizeof place, " (replica %" PRIu32 " of %" PRIu32 ", shard %" PRIu32 " of %" PRIu32 ")",
			 config->row + 1, config->replicas, config->column + 1, config->shards);
	log_line(LEVEL_NOTICE, "editd %s: %s, member %" PRIu32 " of %" PRIu32 "%s, listening on %s%s%s%s", EDIT_VERSION,
		 config->names[config->rank], config->rank + 1, config->member_count, place, config->listen,
		 config->shard_listen ? " and " : "", config->shard_listen ? config->shard_listen : "",
		 config->is_encrypted ? ", encrypted" : "");
}

int daemon_open(struct daemon *daemon)
{
	daemon->signal_fd = daemon->lock.fd = daemon->state_lock.fd = daemon->port.listen_fd = daemon->port.fd = -1;
	daemon->begin_us = daemon->now_us = clock_us();
	while (daemon->incarnation == 0)
		if (getrandom(&daemon->incarnation, sizeof daemon->incarnation, 0) !=
		    (ssize_t)sizeof daemon->incarnation)
			daemon->incarnation = 0;
	notify_init(&daemon->notify);
	run_init(&daemon->run, &daemon->config);
	int error = open_signals(daemon);
	if (!error)
		error = open_lock(daemon);
	if (!error)
		error = open_membership(daemon);
	if (!error)
		error = open_transport(daemon);
	if (!error)
		error = open_ports(daemon);
	if (error) {
		daemon_close(daemon);
		return error;
	}
	checkpoint_init(&daemon->checkpoint, &daemon->config);
	driver_init(&daemon->driver, &daemon->config, daemon->transport, &daemon->port, &daemon->checkpoint,
		    &daemon->run, daemon->incarnation);
	tell_place(&daemon->config);
	recovery_open(&daemon->recovery, &daemon->config, daemon->transport, daemon->incarnation);
	notify_ready(&daemon->notify);
	return 0;
}

void daemon_close(struct daemon *daemon)
{
	notify_stopping(&daemon->notify);
	checkpoint_close(&daemon->checkpoint);
	worker_port_close(&daemon->port);
	if (daemon->control)
		control_close(daemon->control);
	/* Before the memory that frames in its queues point to. */
	if (daemon->transport)
		transport_close(daemon->transport);
	membership_close(&daemon->membership);
	driver_close(&daemon->driver);
	run_close(&daemon->run);
	if (daemon->lock.fd >= 0)
		lock_close(&daemon->lock);
	if (daemon->state_lock.fd >= 0)
		lock_close(&daemon->state_lock);
	if (daemon->signal_fd >= 0)
		close(daemon->signal_fd);
	keyring_close(&daemon->keyring);
	config_close(&daemon->config);
}
