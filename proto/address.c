/* Taking addresses apart. */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "proto/address.h"

/* A port: 1 to 65535, digits only; 0 if text is none. */
static uint16_t port_parse(const char *text)
{
	size_t length = strspn(text, "0123456789");
	if (length < 1 || length > 5 || text[length])
		return 0;
	long port = strtol(text, NULL, 10);
	return port <= 65535 ? (uint16_t)port : 0;
}

static bool host_is_valid(const char *host, bool is_bracketed)
{
	struct in6_addr v6;
	if (is_bracketed)
		return inet_pton(AF_INET6, host, &v6) == 1;
	if (!strcmp(host, "*"))
		return true;
	/* A name or IPv4; also an interface's name, as ZeroMQ binds to them. */
	size_t length = strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");
	return length > 0 && host[length] == 0 && host[0] != '-' && host[0] != '.';
}

static int tcp_parse(const char *text, const char *rest, struct address *ret_address, struct line *why)
{
	struct address address = {.kind = ADDRESS_TCP};
	bool is_bracketed = rest[0] == '[';
	const char *begin = rest + is_bracketed;
	const char *end = is_bracketed ? strstr(begin, "]:") : strrchr(begin, ':');
	if (end && (size_t)(end - begin) < sizeof(address.host)) {
		memcpy(address.host, begin, (size_t)(end - begin));
		address.port = port_parse(end + 1 + is_bracketed);
		if (address.port && host_is_valid(address.host, is_bracketed)) {
			*ret_address = address;
			return 0;
		}
	}
	return line_fail(why, EDIT_ERROR_INVALID, "\"%s\": expected tcp://HOST:PORT with a port from 1 to 65535", text);
}

static int ipc_parse(const char *text, const char *path, struct address *ret_address, struct line *why)
{
	struct address address = {.kind = ADDRESS_IPC};
	size_t length = strlen(path);
	if (path[0] != '/' || length > ADDRESS_PATH_MAX)
		return line_fail(why, EDIT_ERROR_INVALID, "\"%s\": expected ipc:// and an absolute path of up to %d bytes", text,
				 (int)ADDRESS_PATH_MAX);
	memcpy(address.path, path, length + 1);
	*ret_address = address;
	return 0;
}

int address_parse(const char *text, struct address *ret_address, struct line *why)
{
	size_t length = strlen(text);
	if (length > ADDRESS_TEXT_MAX || !text_is_plain(text, length))
		return line_fail(why, EDIT_ERROR_INVALID, "an address is at most %d bytes of plain text", (int)ADDRESS_TEXT_MAX);
	if (!strncmp(text, "tcp://", 6))
		return tcp_parse(text, text + 6, ret_address, why);
	if (!strncmp(text, "ipc://", 6))
		return ipc_parse(text, text + 6, ret_address, why);
	return line_fail(why, EDIT_ERROR_INVALID, "\"%s\": expected tcp://HOST:PORT or ipc://PATH", text);
}

bool address_is_loopback(const struct address *address)
{
	struct in_addr v4;
	struct in6_addr v6;
	if (address->kind == ADDRESS_IPC || !strcmp(address->host, "localhost"))
		return true;
	if (inet_pton(AF_INET, address->host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, address->host, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	return false;
}
