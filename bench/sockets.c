/* The bench's own ends of a proxied connection, in C so that they are never what is measured, and the least that any
   proxy in user space does. Compiled by the bench.

     sockets echo                        a server: upgrades and sends every byte back; answers a PUT when it is whole
     sockets relay PORT                  a proxy without HTTP: read here, write there, nothing else
     sockets load PORT COUNT DEEP SECONDS   a client: COUNT connections, DEEP messages under way on each, the upgrade's
                                         head on standard input; prints messages a second                               */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 1032, MOST = 4096, SIZE = 1 << 18 };
struct end { int fd, other; long left; int open; };
static struct end ends[65536];
static char buffer[SIZE + 1];
static int poller;

static void die(const char *what) { perror(what); exit(1); }

static void write_all(int fd, const char *data, long size) {
    while (size > 0) {
        long n = write(fd, data, size);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd waits = {fd, POLLOUT, 0};
            poll(&waits, 1, 1000);
        } else if (n < 0) {
            return;
        } else {
            data += n, size -= n;
        }
    }
}

static struct end *watch(int fd) {
    int one = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ends[fd] = (struct end){fd, -1, 0, 0};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
    return &ends[fd];
}

static struct sockaddr_in at(int port) {
    return (struct sockaddr_in){AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {0}};
}

static int dial(int port) {
    struct sockaddr_in address = at(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    return fd;
}

static int listen_anywhere(void) {
    struct sockaddr_in address = at(0);
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1024)) die("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void hang_up(struct end *end) {
    if (end->other >= 0) close(end->other);
    close(end->fd);
}

static void echo(struct end *end, long n) {
    static const char *switches = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                                  "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    static const char *done = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    if (end->open) {
        write_all(end->fd, buffer, n);
        return;
    }
    if (end->left == 0) {
        buffer[n] = 0;
        char *body = strstr(buffer, "\r\n\r\n"), *length = strcasestr(buffer, "\r\ncontent-length:");
        if (!length || length > body) {
            end->open = 1;
            write_all(end->fd, switches, strlen(switches));
            return;
        }
        end->left = atol(length + 17) - (n - (body + 4 - buffer));
    } else {
        end->left -= n;
    }
    if (end->left == 0) write_all(end->fd, done, strlen(done));
}

static void serve(int relay_to) {
    struct epoll_event events[256];
    int listener = listen_anywhere();
    watch(listener);
    for (;;) {
        int count = epoll_wait(poller, events, 256, -1);
        for (int i = 0; i < count; i++) {
            struct end *end = &ends[events[i].data.fd];
            if (end->fd == listener) {
                struct end *one = watch(accept(listener, 0, 0));
                if (relay_to) {
                    struct end *two = watch(dial(relay_to));
                    one->other = two->fd, two->other = one->fd;
                }
                continue;
            }
            long n = recv(end->fd, buffer, SIZE, MSG_DONTWAIT);
            if (n < 0 && errno == EAGAIN) continue;
            if (n <= 0) hang_up(end);
            else if (relay_to) write_all(end->other, buffer, n);
            else echo(end, n);
        }
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void load(int port, int count, int deep, double seconds) {
    static char head[8192], messages[MESSAGE * MOST];
    struct epoll_event events[256];
    long size = fread(head, 1, sizeof head, stdin), counted = 0;
    for (long at = 0; at < (long)sizeof messages; at += MESSAGE) {
        memcpy(messages + at, "\x82\xfe\x04\x00" "abcd", 8);
        memset(messages + at + 8, 'm', MESSAGE - 8);
    }
    for (int i = 0; i < count; i++) {
        int fd = dial(port);
        write_all(fd, head, size);
        long n = read(fd, buffer, SIZE);
        buffer[n < 0 ? 0 : n] = 0;
        if (!strstr(buffer, " 101 ")) { fprintf(stderr, "%s\n", buffer); exit(1); }
        watch(fd);
        write_all(fd, messages, (long)MESSAGE * deep);
    }
    double began = now() + 1, ends_at = began + seconds;
    for (int counting = 0;;) {
        int ready = epoll_wait(poller, events, 256, 100);
        double time = now();
        if (!counting && time >= began) counting = 1, counted = 0, began = time;
        if (time >= ends_at) {
            printf("%.1f\n", counted / (time - began));
            return;
        }
        for (int i = 0; i < ready; i++) {
            struct end *end = &ends[events[i].data.fd];
            long n = recv(end->fd, buffer, SIZE, MSG_DONTWAIT);
            if (n <= 0) die("lost a connection");
            long whole = (end->left + n) / MESSAGE;
            end->left = (end->left + n) % MESSAGE;
            counted += whole;
            write_all(end->fd, messages, whole * MESSAGE);
        }
    }
}

int main(int argc, char **argv) {
    poller = epoll_create1(0);
    if (argc == 2 && !strcmp(argv[1], "echo")) serve(0);
    if (argc == 3 && !strcmp(argv[1], "relay")) serve(atoi(argv[2]));
    if (argc == 6 && !strcmp(argv[1], "load")) load(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atof(argv[5]));
    else return fprintf(stderr, "echo | relay PORT | load PORT COUNT DEEP SECONDS\n"), 2;
    return 0;
}
