// What the kernel alone asks for a fan-out: one thread, one epoll, no protocol.
//
//	bare PORT
//
// A connection that says 's' subscribes and is told 's'. One that says 'p' publishes: whatever it writes from then on is passed to
// every subscriber as it was read. Built plainly a read costs one write(2) per subscriber; with -DURING the sends of up to BATCH
// subscribers enter the kernel together through io_uring.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FILES = 1 << 16, EVENTS = 512, BATCH = 1024, CHUNK = 1 << 20 };
enum role { FRESH, SUBSCRIBER, PUBLISHER };

static struct {
	unsigned char role;
	int place; // in subscribers
} files[FILES];
static int subscribers[FILES], count;
static char chunk[CHUNK];

static void fail(const char *what) {
	fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
	exit(1);
}

// put writes all of it, waiting where the socket is full: a bare loop has nothing better to do.
static void put(int fd, const char *from, size_t n) {
	while (n > 0) {
		ssize_t w = send(fd, from, n, MSG_NOSIGNAL);
		if (w > 0) {
			from += w, n -= w;
		} else if (errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLOUT};
			poll(&p, 1, 1000);
		} else if (errno != EINTR) {
			return;
		}
	}
}

#ifdef URING
#include <liburing.h>

static struct io_uring ring;

static void prepare(void) {
	struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN};
	int rc = io_uring_queue_init_params(BATCH, &ring, &p);
	if (rc < 0) {
		errno = -rc;
		fail("io_uring");
	}
}

// A send that went out whole leaves no completion; one that did not leaves a short count, and put sends the rest.
static void settle(size_t n) {
	struct io_uring_cqe *done;
	while (io_uring_peek_cqe(&ring, &done) == 0) {
		int fd = (int)io_uring_cqe_get_data64(done);
		size_t sent = done->res > 0 ? (size_t)done->res : 0;
		int again = done->res >= 0 || done->res == -EAGAIN;
		io_uring_cqe_seen(&ring, done);
		if (again && sent < n) put(fd, chunk + sent, n - sent);
	}
}

static void fanout(size_t n) {
	for (int at = 0; at < count;) {
		int end = at + BATCH < count ? at + BATCH : count;
		for (; at < end; at++) {
			struct io_uring_sqe *e = io_uring_get_sqe(&ring);
			io_uring_prep_send(e, subscribers[at], chunk, n, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_WAITALL);
			io_uring_sqe_set_data64(e, subscribers[at]);
			e->flags |= IOSQE_CQE_SKIP_SUCCESS;
		}
		if (io_uring_submit_and_get_events(&ring) < 0) fail("submit");
		settle(n);
	}
}
#else
static void prepare(void) {}

static void fanout(size_t n) {
	for (int i = 0; i < count; i++) {
		ssize_t w = write(subscribers[i], chunk, n);
		if (w < (ssize_t)n) put(subscribers[i], chunk + (w > 0 ? w : 0), n - (w > 0 ? w : 0));
	}
}
#endif

static void leave(int fd) {
	if (files[fd].role == SUBSCRIBER) {
		int last = subscribers[--count];
		subscribers[files[fd].place] = last;
		files[last].place = files[fd].place;
	}
	close(fd);
}

static void take(int poller, int listener) {
	int fd, on = 1;
	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		if (fd >= FILES) {
			close(fd);
			continue;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		files[fd].role = FRESH;
		struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
		if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e)) fail("epoll");
	}
}

static void serve(int fd) {
	if (files[fd].role == FRESH) {
		char said;
		if (read(fd, &said, 1) != 1) {
			leave(fd);
		} else if (said == 's') {
			files[fd].role = SUBSCRIBER;
			files[fd].place = count;
			subscribers[count++] = fd;
			put(fd, "s", 1);
		} else {
			files[fd].role = PUBLISHER;
		}
		return;
	}
	ssize_t n = read(fd, chunk, sizeof chunk);
	if (n <= 0) {
		if (n == 0 || errno != EAGAIN) leave(fd);
	} else if (files[fd].role == PUBLISHER) {
		fanout(n);
	}
}

int main(int argc, char **argv) {
	if (argc != 2) {
		fprintf(stderr, "usage: bare PORT\n");
		return 2;
	}
	int on = 1, poller = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	prepare();
	if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 4096)) fail("listen");
	struct epoll_event events[EVENTS], e = {.events = EPOLLIN, .data.fd = listener};
	if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e)) fail("epoll");
	for (;;) {
		int n = epoll_wait(poller, events, EVENTS, -1);
		for (int i = 0; i < n; i++) {
			if (events[i].data.fd == listener) take(poller, listener);
			else serve(events[i].data.fd);
		}
	}
}
