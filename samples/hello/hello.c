// SPDX-License-Identifier: GPL-2.0
/*
 * A text to a server and back, over SDP:
 *
 *   hello serve 192.0.2.1 7000        answers one client
 *   hello ask 192.0.2.1 7000 TEXT     prints what the server answers
 *
 * Built by: cc -o hello hello.c (with ib_sdp.h, which `make install` installs).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ib_sdp.h>

static void check(int result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
}

/* All that the peer sends until it ends its half of the stream. */
static size_t receive(int fd, char *text, size_t room)
{
	size_t len = 0;
	ssize_t n;

	while (len < room && (n = recv(fd, text + len, room - len, 0)) != 0) {
		check(n, "recv");
		len += n;
	}
	return len;
}

static void reply(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

		check(n, "send");
		text += n;
		len -= n;
	}
	check(shutdown(fd, SHUT_WR), "shutdown");
}

static int serve(int fd, const struct sockaddr_in *address)
{
	char text[4096];
	size_t len;
	int client;

	check(bind(fd, (const struct sockaddr *)address, sizeof(*address)), "bind");
	check(listen(fd, 1), "listen");
	client = accept(fd, NULL, NULL);
	check(client, "accept");
	len = receive(client, text, sizeof(text));
	reply(client, text, len);
	check(close(client), "close");
	return 0;
}

static int ask(int fd, const struct sockaddr_in *address, const char *text)
{
	char answer[4096];
	size_t len;

	check(connect(fd, (const struct sockaddr *)address, sizeof(*address)), "connect");
	reply(fd, text, strlen(text));
	len = receive(fd, answer, sizeof(answer));
	printf("%.*s\n", (int)len, answer);
	return 0;
}

int main(int argc, char **argv)
{
	/* Addresses are those of AF_INET. */
	struct sockaddr_in address = { .sin_family = AF_INET };
	int fd;

	if (argc < 4 || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: hello serve ADDRESS PORT | hello ask ADDRESS PORT TEXT\n");
		return 2;
	}
	address.sin_port = htons(atoi(argv[3]));
	fd = socket(AF_INET_SDP, SOCK_STREAM, 0);
	if (fd < 0 && errno == EAFNOSUPPORT)
		fprintf(stderr, "hello: is the module ib_sdp installed?\n");
	check(fd, "socket");
	if (!strcmp(argv[1], "serve"))
		return serve(fd, &address);
	return ask(fd, &address, argc > 4 ? argv[4] : "hello");
}
