/* The accept4() of this program, called by libzmq. Closes what would use up the descriptors that the daemon needs. */

#include "daemon/gate.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_MAX = 1024, TOOLS_MAX = 32, OWN_MAX = 16 };

static _Atomic uint64_t refused;

/* By descriptor: when a connection at the peer port was last accepted under this number, and that port; 0: never. */
#define ACCEPTED(ms, port) ((uint64_t)(ms) << 16 | (port))
#define ACCEPTED_MS(accepted) ((accepted) >> 16)
#define ACCEPTED_PORT(accepted) ((unsigned)((accepted) & 0xffff))
static _Atomic uint64_t accepted[LIMIT_MAX];

static uint64_t clock_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int limit(void)
{
	struct rlimit found;
	if (getrlimit(RLIMIT_NOFILE, &found) != 0 || found.rlim_cur > LIMIT_MAX)
		return LIMIT_MAX;
	return (int)found.rlim_cur;
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

int gate_tool_end(void)
{
	int all = limit();
	return all - least(OWN_MAX, all / 8);
}

int gate_peer_end(void)
{
	return gate_tool_end() - least(TOOLS_MAX, limit() / 8);
}

uint64_t gate_refused(void)
{
	return atomic_load(&refused);
}

/* First descriptor that a connection of this listener may not have. */
static int end_of(int listener)
{
	int domain = 0, type = 0;
	socklen_t domain_bytes = sizeof domain, type_bytes = sizeof type;
	if (getsockopt(listener, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) != 0 ||
	    getsockopt(listener, SOL_SOCKET, SO_TYPE, &type, &type_bytes) != 0)
		return 0;
	if (domain != AF_UNIX)
		return gate_peer_end();
	/* Workers are let in by the daemon itself, one at a time. */
	return type == SOCK_SEQPACKET ? INT_MAX : gate_tool_end();
}

/* The port of this host that a connection has come in at, or goes out from; 0: no socket of that kind. */
static unsigned port_of(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} own = {0};
	socklen_t own_bytes = sizeof own;
	if (getsockname(fd, &own.any, &own_bytes) != 0)
		return 0;
	if (own.any.sa_family == AF_INET)
		return ntohs(own.v4.sin_port);
	return own.any.sa_family == AF_INET6 ? ntohs(own.v6.sin6_port) : 0;
}

static bool is_kept(int fd, const int *kept, size_t kept_count)
{
	for (size_t i = 0; i < kept_count; i++)
		if (kept[i] == fd)
			return true;
	return false;
}

size_t gate_evict(const int *kept, size_t kept_count, uint64_t age_us)
{
	size_t count = 0;
	uint64_t now_ms = clock_ms();
	for (int fd = 0; fd < LIMIT_MAX; fd++) {
		uint64_t found = atomic_load(&accepted[fd]);
		if (found == 0 || now_ms - ACCEPTED_MS(found) < age_us / 1000 || is_kept(fd, kept, kept_count))
			continue;
		/* The number may belong to something else by now, which the port tells. Should ZeroMQ close the
		 * connection and accept another between these two calls, a younger one is shut down; it comes again. */
		if (port_of(fd) == ACCEPTED_PORT(found) && shutdown(fd, SHUT_RDWR) == 0)
			count++;
	}
	return count;
}

/* Named accept4 for the linker only: the type of the C library's differs from one C library to the next. */
int gate_accept(int listener, struct sockaddr *address, socklen_t *address_bytes, int flags) __asm__("accept4");

__attribute__((visibility("default"))) int gate_accept(int listener, struct sockaddr *address, socklen_t *address_bytes,
							int flags)
{
	int fd = (int)syscall(SYS_accept4, listener, address, address_bytes, flags);
	if (fd >= 0 && fd < end_of(listener)) {
		unsigned port = port_of(fd);
		if (port != 0 && fd < LIMIT_MAX)
			atomic_store(&accepted[fd], ACCEPTED(clock_ms(), port));
		return fd;
	}
	if (fd >= 0) {
		close(fd);
		errno = ECONNABORTED;
	} else if (errno == EMFILE || errno == ENOBUFS || errno == ENOMEM) {
		/* At a unix socket ZeroMQ goes on after this one, but not after those. */
		errno = ENFILE;
	} else {
		return -1;
	}
	atomic_fetch_add(&refused, 1);
	return -1;
}
