/* Delays the packets that a rule of netfilter puts into a queue: what `tc netem delay` does, for kernels that are built
 * without it. Packets stay in the kernel, only their numbers come here; their order is kept. When this program is gone, a rule
 * with --queue-bypass lets packets through at once. Dies with the process that has started it.
 *
 *   iptables -I FORWARD -j NFQUEUE --queue-num 1 --queue-bypass
 *   netdelay 1 30          # milliseconds; prints "ready" once it holds packets
 */

#include <arpa/inet.h>
#include <errno.h>
#include <libnetfilter_queue/libnetfilter_queue.h>
#include <linux/netfilter.h>
#include <linux/netlink.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { HELD_MAX = 1 << 16, BUFFER_BYTES = 1 << 16, SOCKET_BYTES = 8 << 20 };

struct held {
	uint32_t id;
	uint64_t due_ns;
};

/* A first-in first-out queue: packets from first to last, each at its number modulo HELD_MAX. */
static struct {
	struct held held[HELD_MAX];
	uint32_t first, last;
	uint64_t delay_ns;
} line;

static uint64_t clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Called for each packet of a message. A full line lets it through. */
static int hold(struct nfq_q_handle *queue, struct nfgenmsg *message, struct nfq_data *packet, void *context)
{
	(void)message;
	(void)context;
	struct nfqnl_msg_packet_hdr *header = nfq_get_msg_packet_hdr(packet);
	if (!header)
		return 0;
	uint32_t id = ntohl(header->packet_id);
	if (line.last - line.first == HELD_MAX)
		return nfq_set_verdict(queue, id, NF_ACCEPT, 0, NULL);
	line.held[line.last++ % HELD_MAX] = (struct held){id, clock_ns() + line.delay_ns};
	return 0;
}

/* Lets go what is due. Returns the time until the next packet is, or -1 if there is none. */
static int64_t release(struct nfq_q_handle *queue)
{
	while (line.first != line.last) {
		struct held *next = &line.held[line.first % HELD_MAX];
		uint64_t now_ns = clock_ns();
		if (next->due_ns > now_ns)
			return (int64_t)(next->due_ns - now_ns);
		nfq_set_verdict(queue, next->id, NF_ACCEPT, 0, NULL);
		line.first++;
	}
	return -1;
}

/* Binds the queue so that only numbers of packets are copied, and none is lost on the way here. NULL with errno. */
static struct nfq_q_handle *queue_open(struct nfq_handle *netfilter, uint16_t number)
{
	struct nfq_q_handle *queue = nfq_create_queue(netfilter, number, hold, NULL);
	int on = 1;
	if (!queue || nfq_set_mode(queue, NFQNL_COPY_META, 0) < 0 || nfq_set_queue_maxlen(queue, HELD_MAX) < 0 ||
	    nfq_set_queue_flags(queue, NFQA_CFG_F_GSO, NFQA_CFG_F_GSO) < 0)
		return NULL;
	nfnl_rcvbufsiz(nfq_nfnlh(netfilter), SOCKET_BYTES);
	setsockopt(nfq_fd(netfilter), SOL_NETLINK, NETLINK_NO_ENOBUFS, &on, sizeof on);
	return queue;
}

static int serve(struct nfq_handle *netfilter, struct nfq_q_handle *queue)
{
	static char buffer[BUFFER_BYTES];
	struct pollfd fd = {.fd = nfq_fd(netfilter), .events = POLLIN};
	for (;;) {
		int64_t wait_ns = release(queue);
		struct timespec wait = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
		int ready = ppoll(&fd, 1, wait_ns < 0 ? NULL : &wait, NULL);
		if (ready < 0 && errno != EINTR)
			return errno;
		if (ready <= 0)
			continue;
		ssize_t bytes = recv(fd.fd, buffer, sizeof buffer, MSG_DONTWAIT);
		if (bytes > 0)
			nfq_handle_packet(netfilter, buffer, (int)bytes);
		else if (bytes < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
			return errno;
	}
}

int main(int argc, char **argv)
{
	char *end[2] = {NULL, NULL};
	long number = argc == 3 ? strtol(argv[1], &end[0], 10) : -1;
	double delay_ms = argc == 3 ? strtod(argv[2], &end[1]) : -1;
	if (argc != 3 || *end[0] || *end[1] || number < 0 || number > UINT16_MAX || !(delay_ms >= 0 && delay_ms <= 60000)) {
		fprintf(stderr, "usage: netdelay QUEUE MILLISECONDS (0 to 65535, 0 to 60000)\n");
		return 2;
	}
	line.delay_ns = (uint64_t)(delay_ms * 1e6);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_TIMERSLACK, 1000);
	struct nfq_handle *netfilter = nfq_open();
	struct nfq_q_handle *queue = netfilter ? queue_open(netfilter, (uint16_t)number) : NULL;
	if (!queue) {
		perror("netdelay: cannot take packets from the queue");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	errno = serve(netfilter, queue);
	perror("netdelay: the queue is lost");
	return 1;
}
