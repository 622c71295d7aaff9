/* Answers about the mesh: places, what is known of whom, and where this node's memory goes. Only looks. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/advice.h"
#include "daemon/answer.h"

static Edit__Control__MeshMember *make_member(struct answer *answer, uint32_t rank)
{
	const struct daemon *daemon = answer->daemon;
	struct node_peer known = {.state = PEER_UNKNOWN};
	Edit__Control__MeshMember *member = answer_take(answer, sizeof *member);
	edit__control__mesh_member__init(member);
	if (daemon->driver.node)
		node_mesh_peer(daemon->driver.node, rank, daemon->now_us, &known);
	member->name = daemon->config.names[rank];
	member->state = answer_text(answer, answer_member_text(daemon, rank, &known));
	member->neighbour = known.is_neighbour;
	member->silent_us = known.silent_us;
	member->round = known.round;
	member->waits_for_worker = known.waits_for_worker;
	return member;
}

/* A number of /proc/PID/name, told there as "key: NUMBER kB", in bytes; 0 if it cannot be read. */
static uint64_t proc_bytes(long pid, const char *name, const char *key)
{
	char path[64], line[256];
	const size_t length = strlen(key);
	uint64_t kib = 0;
	snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
	FILE *file = pid > 0 ? fopen(path, "re") : NULL;
	while (file && fgets(line, sizeof line, file))
		if (strncmp(line, key, length) == 0 && line[length] == ':' && sscanf(line + length + 1, "%" SCNu64, &kib) == 1)
			break;
	if (file)
		fclose(file);
	return 1024 * kib;
}

/* Proportional set size of a process, bytes; 0 if it cannot be read. */
static uint64_t proportional_bytes(long pid)
{
	return proc_bytes(pid, "smaps_rollup", "Pss");
}

/* What a process has had for itself at its peak: that of all it held, without what it holds of files and shared memory. */
static uint64_t own_bytes(long pid)
{
	uint64_t peak = proc_bytes(pid, "status", "VmHWM"), own = proc_bytes(pid, "status", "RssAnon");
	uint64_t shared = proc_bytes(pid, "status", "RssFile") + proc_bytes(pid, "status", "RssShmem");
	return u64_max(own, peak > shared ? peak - shared : 0);
}

static void put_memory(struct answer *answer, Edit__Control__Mesh *mesh)
{
	const struct daemon *daemon = answer->daemon;
	const struct segment *segment = &daemon->run.segment;
	uint64_t elements = 0;
	for (size_t i = 0; i < segment->layer_count; i++)
		elements += segment_layer_size(segment, i);
	const uint64_t slots = segment->shards > 1 ? SEGMENT_SLOT_COUNT * segment->slot_size * sizeof(float) : 0;
	const struct {
		const char *kind;
		uint64_t bytes;
	} kinds[] = {{"theta", elements * sizeof(float)},
		     {"optimiser", segment->inner_factor * elements * sizeof(float)},
		     {"gradients", elements * sizeof(float)},
		     {"gathered layers", slots},
		     {"anchor", elements * sizeof(float)},
		     {"momentum", elements * sizeof(float)},
		     {"base and snapshot", daemon->run.spare_bytes},
		     {"rounds on the ring", daemon->driver.block_bytes}};
	mesh->memory = (Edit__Control__Memory **)answer_list(answer, sizeof kinds / sizeof kinds[0]);
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && mesh->memory; i++) {
		Edit__Control__Memory *memory = answer_take(answer, sizeof *memory);
		edit__control__memory__init(memory);
		memory->kind = answer_text(answer, kinds[i].kind);
		memory->bytes = kinds[i].bytes;
		mesh->memory[mesh->n_memory++] = memory;
	}
	mesh->gather_us = atomic_load(&segment->header->gather_us);
}

/* Whom it waits for; of itself the member knows what the others know from its heartbeats. */
static void put_state(struct answer *answer, Edit__Control__Mesh *mesh)
{
	const struct daemon *daemon = answer->daemon;
	const struct config *config = &daemon->config;
	struct node_status status;
	char advice[LINE_BYTES];
	node_status(daemon->driver.node, daemon->now_us, &status);
	advice_text(daemon, advice, sizeof advice);
	uint32_t waits_for = answer_waits_for(daemon, &status);
	mesh->round = status.round;
	mesh->stalled_us = status.stalled_us;
	mesh->advice = answer_text(answer, advice);
	if (waits_for < config->member_count)
		mesh->waiting_for = config->names[waits_for];
	if (mesh->n_members == config->member_count) {
		mesh->members[config->rank]->round = status.round;
		mesh->members[config->rank]->waits_for_worker = status.phase == NODE_TRAINING || waits_for == config->rank;
	}
}

int answer_mesh(struct answer *answer, const struct control_request *request)
{
	(void)request;
	const struct daemon *daemon = answer->daemon;
	const struct config *config = &daemon->config;
	Edit__Control__Mesh *mesh = answer_take(answer, sizeof *mesh);
	edit__control__mesh__init(mesh);
	mesh->rows = config->replicas;
	mesh->columns = config->shards;
	mesh->row = config->row;
	mesh->column = config->column;
	mesh->fanout = config->fanout;
	mesh->members = (Edit__Control__MeshMember **)answer_list(answer, config->member_count);
	for (uint32_t rank = 0; rank < config->member_count && mesh->members; rank++)
		mesh->members[mesh->n_members++] = make_member(answer, rank);
	if (daemon->driver.node) {
		put_state(answer, mesh);
		put_memory(answer, mesh);
	}
	long worker = daemon->port.phase >= PORT_ATTACHED ? (long)daemon->port.pid : 0;
	mesh->daemon_bytes = proportional_bytes((long)getpid());
	mesh->worker_pid = (uint64_t)worker;
	mesh->worker_bytes = proportional_bytes(worker);
	mesh->worker_own_bytes = own_bytes(worker);
	answer->reply.body_case = EDIT__CONTROL__REPLY__BODY_MESH;
	answer->reply.mesh = mesh;
	return 0;
}
