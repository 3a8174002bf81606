/* The CPU time that the kernel takes for small requests and their answers.
 *
 *     requests CONNECTIONS REQUEST_BYTES REQUESTS_PER_S SECONDS
 *
 * One thread sends requests over its connections in turn, each at its own time, and reads the
 * answers; a second process answers. Prints the payload and the CPU time of the first process until
 * now, every tenth of a second, as the other children of the benchmark do.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_BYTES = 60, EVENTS = 256, PART_BYTES = 1 << 18 };

static char part[PART_BYTES];

static void check(int is_right, const char *what) {
    if (!is_right) {
        perror(what);
        exit(1);
    }
}

static double seconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void watch(int poll, int sock) {
    int on = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = sock};
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    check(epoll_ctl(poll, EPOLL_CTL_ADD, sock, &event) == 0, "epoll_ctl");
}

/* Answer each request; ends with its parent. */
static void answer(int listener, int connections, long request_bytes) {
    int poll = epoll_create1(0), highest = 0;
    int *socks = calloc(connections, sizeof(int));
    for (int i = 0; i < connections; i++) {
        socks[i] = accept(listener, NULL, NULL);
        check(socks[i] >= 0, "accept");
        watch(poll, socks[i]);
        if (socks[i] > highest) highest = socks[i];
    }
    long *arrived = calloc(highest + 1, sizeof(long));
    struct epoll_event events[EVENTS];
    char bytes[ANSWER_BYTES] = {0};
    for (;;) {
        int count = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            int sock = events[i].data.fd;
            ssize_t size = read(sock, part, PART_BYTES);
            if (size <= 0) exit(0);
            for (arrived[sock] += size; arrived[sock] >= request_bytes;) {
                arrived[sock] -= request_bytes;
                check(write(sock, bytes, ANSWER_BYTES) == ANSWER_BYTES, "write");
            }
        }
    }
}

int main(int count, char **values) {
    check(count == 5, "expected CONNECTIONS REQUEST_BYTES REQUESTS_PER_S SECONDS");
    int connections = atoi(values[1]);
    long request_bytes = atol(values[2]);
    double pause_s = 1 / atof(values[3]), last_s = atof(values[4]);
    check(connections > 0 && request_bytes > 0 && request_bytes <= PART_BYTES, "a size");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(listener, (void *)&address, sizeof address) == 0, "bind");
    check(listen(listener, connections) == 0, "listen");
    getsockname(listener, (void *)&address, &length);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        answer(listener, connections, request_bytes);
    }
    int poll = epoll_create1(0);
    int *socks = calloc(connections, sizeof(int));
    for (int i = 0; i < connections; i++) {
        socks[i] = socket(AF_INET, SOCK_STREAM, 0);
        check(connect(socks[i], (void *)&address, sizeof address) == 0, "connect");
        watch(poll, socks[i]);
    }
    char *request = calloc(1, request_bytes), answers[4096];
    struct epoll_event events[EVENTS];
    long received = 0;
    double due_s = seconds(CLOCK_MONOTONIC), said_s = due_s;
    for (int turn = 0; last_s > 0;) {
        double at_s = seconds(CLOCK_MONOTONIC);
        for (; due_s <= at_s; due_s += pause_s, turn = (turn + 1) % connections)
            check(send(socks[turn], request, request_bytes, 0) == request_bytes, "send");
        double wait_s = due_s - seconds(CLOCK_MONOTONIC);
        if (wait_s < 0) wait_s = 0;
        struct timespec wait = {.tv_sec = (time_t)wait_s};
        wait.tv_nsec = (long)((wait_s - wait.tv_sec) * 1e9);
        int ready = epoll_pwait2(poll, events, EVENTS, &wait, NULL);
        for (int i = 0; i < ready; i++) {
            ssize_t size = recv(events[i].data.fd, answers, sizeof answers, 0);
            check(size > 0, "recv");
            received += size;
        }
        if (at_s - said_s >= 0.1) {
            last_s -= at_s - said_s;
            said_s = at_s;
            printf("{\"bytes\": %ld, \"cpu_s\": %.6f, \"requests\": %ld}\n",
                   received / ANSWER_BYTES * request_bytes, seconds(CLOCK_PROCESS_CPUTIME_ID),
                   received / ANSWER_BYTES);
            fflush(stdout);
        }
    }
    return 0;
}
