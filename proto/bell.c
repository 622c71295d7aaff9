/* The doorbell's packets. */

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/segment.h"

/* Error code of a failed send or receive. */
static int socket_error(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM ? 0 : EDIT_ERROR_LOST;
}

static int packet_send(int socket, const struct msghdr *packet, size_t size_bytes)
{
	ssize_t sent;
	do
		sent = sendmsg(socket, packet, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return socket_error() ? EDIT_ERROR_LOST : EDIT_ERROR_FULL;
	CHECK((size_t)sent == size_bytes); /* packets go whole or not at all */
	return 0;
}

/* Receives a packet; 0 bytes is the end of file, as no side sends empty packets. */
static int packet_receive(int socket, struct msghdr *packet, size_t *ret_size_bytes)
{
	ssize_t got;
	do
		got = recvmsg(socket, packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got == 0)
		return EDIT_ERROR_LOST;
	if (got < 0)
		return socket_error() ? EDIT_ERROR_LOST : EDIT_ERROR_BUSY;
	*ret_size_bytes = (size_t)got;
	return 0;
}

/* Room for the descriptor that goes along. */
union passage {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

int bell_send(int socket, enum segment_bell_kind kind, uint64_t value, uint64_t flags, const char *text, int passed_fd)
{
	struct segment_bell bell = {.kind = kind, .version = SEGMENT_VERSION, .value = value, .flags = flags};
	if (text)
		strncpy(bell.text, text, BELL_TEXT_MAX); /* the rest is zero, and so is the last byte */
	struct iovec part = {.iov_base = &bell, .iov_len = sizeof(bell)};
	struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
	union passage passage = {0};
	if (passed_fd >= 0) {
		packet.msg_control = &passage;
		packet.msg_controllen = sizeof(passage);
		struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &passed_fd, sizeof(int));
	}
	return packet_send(socket, &packet, sizeof(bell));
}

/* The descriptor that came along with a packet, -1 if none. The kernel itself closes those for which there was no room. */
static int packet_fd(struct msghdr *packet)
{
	int fd = -1;
	for (struct cmsghdr *header = CMSG_FIRSTHDR(packet); header; header = CMSG_NXTHDR(packet, header))
		if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS && fd < 0)
			memcpy(&fd, CMSG_DATA(header), sizeof(int));
	return fd;
}

/* What is wrong with a bell of size_bytes: 0, EDIT_ERROR_MALFORMED, EDIT_ERROR_REFUSED. */
static int bell_check(const struct segment_bell *bell, size_t size_bytes, int packet_flags)
{
	if (size_bytes != sizeof(*bell) || packet_flags & (MSG_TRUNC | MSG_CTRUNC))
		return EDIT_ERROR_MALFORMED;
	if (bell->version != SEGMENT_VERSION)
		return EDIT_ERROR_REFUSED;
	return bell->kind >= BELL_ATTACH && bell->kind < BELL_END ? 0 : EDIT_ERROR_MALFORMED;
}

int bell_receive(int socket, struct segment_bell *ret_bell, int *ret_fd)
{
	struct segment_bell bell = {0};
	union passage passage = {0};
	struct iovec part = {.iov_base = &bell, .iov_len = sizeof(bell)};
	struct msghdr packet = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &passage, .msg_controllen = sizeof(passage)};
	size_t size_bytes;
	int error = packet_receive(socket, &packet, &size_bytes);
	if (error)
		return error;
	int fd = packet_fd(&packet);
	error = bell_check(&bell, size_bytes, packet.msg_flags);
	if (error) {
		if (fd >= 0)
			close(fd);
		return error;
	}
	bell.text[BELL_TEXT_MAX] = 0;
	*ret_bell = bell;
	*ret_fd = fd;
	return 0;
}

int bell_send_part(int socket, const void *bytes, size_t size_bytes, size_t *offset)
{
	CHECK(*offset < size_bytes);
	size_t part_bytes = size_min(size_bytes - *offset, BELL_PART_BYTES);
	struct iovec part = {.iov_base = (char *)bytes + *offset, .iov_len = part_bytes};
	struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
	int error = packet_send(socket, &packet, part_bytes);
	if (!error)
		*offset += part_bytes;
	return error;
}

int bell_receive_part(int socket, void *bytes, size_t size_bytes, size_t *offset)
{
	CHECK(*offset < size_bytes);
	size_t part_bytes = size_min(size_bytes - *offset, BELL_PART_BYTES), got_bytes;
	struct iovec part = {.iov_base = (char *)bytes + *offset, .iov_len = part_bytes};
	struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
	int error = packet_receive(socket, &packet, &got_bytes);
	if (error)
		return error;
	if (got_bytes != part_bytes || packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return EDIT_ERROR_MALFORMED;
	*offset += part_bytes;
	return 0;
}
