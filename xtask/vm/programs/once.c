/*
 * Checks that each posted request completes exactly once, in the order of the posts, with intact data or with an error. After the end of a connection no completion is
 * missing, and none comes twice.
 *
 * once ADAPTER PORT: receives messages and lets peers write and read, one connection after another, until SIGTERM.
 * once ADAPTER PORT ADDRESS MILLISECONDS SEED ROUNDS: in each round, writes, reads back and sends for that time or until the connection breaks; then ends the connection,
 * gracefully or abruptly.
 *
 * Prints the number of posted requests, of successful ones, and of flushed or failed ones. Before that it prints the number of rounds whose connection lasted, broke, and was
 * never established. Soft-RoCE may give up a read, report its success and end the connection. Such a read counts as failed, and no later request may succeed; the program prints
 * the number of these reads, and the caller must know that the device is the cause. It also prints the number of connections whose graceful end did not complete and that were
 * ended abruptly.
 *
 * Each connection has a name that both ends know. For each name the sender prints the number of its successful messages (sent NAME COUNT), and the receiver the number of
 * received ones (took NAME COUNT). The caller compares both, because one end cannot notice a message that is lost at the end of a connection.
 *
 * DTO-01, DTO-05, EPD-02
 */
#define EDITION_1_2
#include "../../../dat-ffi/dat-provider/tests/programs/check.h"
#include "common.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <time.h>

/* The bytes of a unit, and the most units in flight; a unit is a write, a read of the same bytes, and a message. */
#define UNIT_BYTES 3000u
#define UNITS 16
#define REQUESTS_PER_UNIT 3
#define MESSAGES 64
/* Milliseconds without a message after which a listener regards a connection as ended, because the notification of its end may be lost. */
#define SILENCE 5000
/* Milliseconds after an end in which no event may come. */
#define QUIET_MILLISECONDS 200

struct grant {
    uint64_t address;
    uint32_t context;
};

static DAT_IA_HANDLE ia;
static DAT_EVD_HANDLE async, events;
static DAT_PZ_HANDLE zone;
static unsigned char *memory;
static DAT_LMR_CONTEXT local;
static DAT_RMR_CONTEXT remote;
static unsigned long long posted, well, failed, state;
static unsigned long long lasted, broken, unconnected, wrong_reads, abrupt_ends;
static DAT_CONN_QUAL port;

static unsigned random_number(void)
{
    return next_random(&state);
}

static unsigned long long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000;
}

static void register_memory(unsigned bytes, DAT_MEM_PRIV_FLAGS privileges)
{
    struct region region;
    memory = new_memory(bytes);
    region = registered(ia, zone, memory, bytes, privileges);
    local = region.local;
    remote = region.remote;
}

/* Creates an endpoint with longer queues than the default. */
static DAT_EP_HANDLE make_endpoint(DAT_EVD_HANDLE transfers, DAT_EVD_HANDLE connections)
{
    DAT_EP_HANDLE usual, endpoint;
    DAT_EP_PARAM parameters;
    OK(dat_ep_create(ia, zone, transfers, transfers, connections, NULL, &usual));
    OK(dat_ep_query(usual, DAT_EP_FIELD_ALL, &parameters));
    OK(dat_ep_free(usual));
    parameters.ep_attr.max_recv_dtos = MESSAGES / 2;
    parameters.ep_attr.max_request_dtos = REQUESTS_PER_UNIT * UNITS;
    OK(dat_ep_create(ia, zone, transfers, transfers, connections, &parameters.ep_attr, &endpoint));
    return endpoint;
}

static int next_of(DAT_EVD_HANDLE evd, DAT_EVENT *event, unsigned microseconds)
{
    DAT_COUNT more;
    DAT_RETURN code = DAT_INTERRUPTED_CALL;
    while (DAT_GET_TYPE(code) == DAT_INTERRUPTED_CALL && !over)
        code = dat_evd_wait(evd, microseconds, 1, event, &more);
    CHECK(code == DAT_SUCCESS || DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED || over);
    return code == DAT_SUCCESS;
}

static int is_end(const DAT_EVENT *event)
{
    switch (event->event_number) {
    case DAT_CONNECTION_EVENT_DISCONNECTED:
    case DAT_CONNECTION_EVENT_BROKEN:
    case DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR:
    case DAT_CONNECTION_EVENT_NON_PEER_REJECTED:
    case DAT_CONNECTION_EVENT_PEER_REJECTED:
    case DAT_CONNECTION_EVENT_TIMED_OUT:
    case DAT_CONNECTION_EVENT_UNREACHABLE:
        return 1;
    default:
        return 0;
    }
}

/* Counts the next completion of a queue, which must be that of the oldest open request; returns 1 if it succeeded. */
static int take_completion(const DAT_EVENT *event, DAT_EP_HANDLE endpoint, unsigned long long *next, unsigned long long end_of_posts)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *done = &event->event_data.dto_completion_event_data;
    CHECK(event->event_number == DAT_DTO_COMPLETION_EVENT);
    CHECK(done->ep_handle == endpoint);
    if (*next >= end_of_posts || done->user_cookie.as_64 != *next) {
        fprintf(stderr, "number %llu completed; %llu to %llu are open\n", (unsigned long long)done->user_cookie.as_64, *next, end_of_posts);
        exit(1);
    }
    ++*next;
    *(done->status == DAT_DTO_SUCCESS ? &well : &failed) += 1;
    return done->status == DAT_DTO_SUCCESS;
}

/* Checks that the dispatcher is empty. */
static void check_empty(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    while (dat_evd_dequeue(evd, &event) == DAT_SUCCESS) {
        fprintf(stderr, "event %#x came after the end\n", event.event_number);
        exit(1);
    }
}

/* Checks that no event comes after the end of an endpoint, for QUIET_MILLISECONDS. */
static void check_quiet(DAT_EVD_HANDLE transfers, DAT_EVD_HANDLE connections)
{
    const unsigned long long begin = milliseconds();
    do {
        check_empty(transfers);
        check_empty(connections);
        usleep(5000);
    } while (milliseconds() < begin + QUIET_MILLISECONDS);
    check_empty(transfers);
    check_empty(connections);
}

/* As `take_completion`, for a receive into this buffer; a successful one must have the message of its number. */
static int take_message(const DAT_EVENT *event, DAT_EP_HANDLE endpoint, const unsigned char *message, unsigned long long *next,
                        unsigned long long end_of_posts)
{
    if (!take_completion(event, endpoint, next, end_of_posts))
        return 0;
    CHECK(event->event_data.dto_completion_event_data.transfered_length == 40);
    if (!is_intact(message, 40, *next - 1, "a message"))
        exit(1);
    return 1;
}

/* Receives the messages of one connection. */
static void serve_connection(DAT_CR_HANDLE request)
{
    DAT_EP_HANDLE endpoint;
    DAT_EVD_HANDLE receives, connections;
    struct grant grant = {(uint64_t)(uintptr_t)memory, remote};
    unsigned char *messages = memory + UNITS * UNIT_BYTES;
    unsigned long long next = 0, last = 0, end_of_waiting, last_message;
    DAT_LMR_TRIPLET room;
    DAT_EVENT event;
    DAT_CR_PARAM parameters;
    uint64_t name;
    unsigned long long received = 0;
    int is_over = 0, number;
    OK(dat_cr_query(request, DAT_CR_FIELD_ALL, &parameters));
    CHECK(parameters.private_data_size >= (DAT_COUNT)sizeof name);
    memcpy(&name, parameters.private_data, sizeof name);
    OK(dat_evd_create(ia, MESSAGES, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &receives));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections));
    endpoint = make_endpoint(receives, connections);
    for (number = 0; number < MESSAGES / 2; number++) {
        room = segment_of(local, messages + number * 64, 64);
        OK(dat_ep_post_recv(endpoint, 1, &room, cookie(last++), DAT_COMPLETION_DEFAULT_FLAG));
        posted++;
    }
    if (dat_cr_accept(request, endpoint, sizeof grant, &grant) != DAT_SUCCESS) {
        /* The peer gave up meanwhile; the posted receives end with the endpoint. */
        posted -= last;
        OK(dat_ep_free(endpoint));
        OK(dat_evd_free(receives));
        OK(dat_evd_free(connections));
        return;
    }
    last_message = milliseconds();
    while (!is_over && !over && milliseconds() < last_message + SILENCE) {
        if (next_of(receives, &event, 2000)) {
            const unsigned char *message = messages + next % (MESSAGES / 2) * 64;
            if (!take_message(&event, endpoint, message, &next, last))
                continue;
            received++;
            last_message = milliseconds();
            room = segment_of(local, message, 64);
            if (dat_ep_post_recv(endpoint, 1, &room, cookie(last), DAT_COMPLETION_DEFAULT_FLAG) == DAT_SUCCESS) {
                last++;
                posted++;
            }
        } else if (dat_evd_dequeue(connections, &event) == DAT_SUCCESS) {
            is_over = is_end(&event);
        }
    }
    (void)dat_ep_disconnect(endpoint, DAT_CLOSE_ABRUPT_FLAG);
    end_of_waiting = milliseconds() + 20000;
    while (next < last && milliseconds() < end_of_waiting)
        if (dat_evd_dequeue(receives, &event) == DAT_SUCCESS)
            received += take_message(&event, endpoint, messages + next % (MESSAGES / 2) * 64, &next, last) != 0;
    if (next < last) {
        fprintf(stderr, "of %llu receives %llu never came back\n", last, last - next);
        exit(1);
    }
    check_empty(receives);
    OK(dat_ep_free(endpoint));
    /* After a silent end, the event of the disconnect call is left. */
    while (dat_evd_dequeue(connections, &event) == DAT_SUCCESS)
        CHECK(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED || is_end(&event));
    check_quiet(receives, connections);
    OK(dat_evd_free(receives));
    OK(dat_evd_free(connections));
    printf("took %016llx %llu\n", (unsigned long long)name, received);
}

static void serve(void)
{
    DAT_PSP_HANDLE listener;
    DAT_EVENT event;
    unsigned connections = 0;
    register_memory(UNITS * UNIT_BYTES + MESSAGES * 64, DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_psp_create(ia, port, events, DAT_PSP_CONSUMER_FLAG, &listener));
    while (!over) {
        if (!next_of(events, &event, SECOND / 5))
            continue;
        CHECK(event.event_number == DAT_CONNECTION_REQUEST_EVENT);
        serve_connection(event.event_data.cr_arrival_event_data.cr_handle);
        connections++;
    }
    OK(dat_psp_free(listener));
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    printf("connections %u\n", connections);
}

/* Connects with a new name; returns 1 if the connection was established. */
static int connected(DAT_EP_HANDLE endpoint, DAT_EVD_HANDLE connections, const char *address, struct grant *grant, uint64_t *name)
{
    struct sockaddr_in to;
    DAT_EVENT event;
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1);
    CHECK(getrandom(name, sizeof *name, 0) == (ssize_t)sizeof *name);
    OK(dat_ep_connect(endpoint, (struct sockaddr *)&to, port, 20 * SECOND, sizeof *name, name, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    CHECK(next_of(connections, &event, 60 * SECOND));
    if (event.event_number != DAT_CONNECTION_EVENT_ESTABLISHED) {
        CHECK(is_end(&event));
        return 0;
    }
    CHECK(event.event_data.connect_event_data.private_data_size >= (DAT_COUNT)sizeof *grant);
    memcpy(grant, event.event_data.connect_event_data.private_data, sizeof *grant);
    return 1;
}

/* As `take_completion`, for units. A successful read must have the bytes that were written, or no later request of this connection may succeed.
 * The message is the last request of a unit. */
static void take_unit(const DAT_EVENT *event, DAT_EP_HANDLE endpoint, unsigned long long *next, unsigned long long end_of_posts, int *is_given_up,
                       unsigned long long *sent)
{
    const unsigned long long unit = *next / REQUESTS_PER_UNIT;
    if (!take_completion(event, endpoint, next, end_of_posts))
        return;
    if (*is_given_up) {
        fprintf(stderr, "number %llu succeeded after a read that did not return the written bytes\n", *next - 1);
        exit(1);
    }
    if ((*next - 1) % REQUESTS_PER_UNIT == 1 && !is_intact(memory + (UNITS + unit % UNITS) * UNIT_BYTES, UNIT_BYTES, unit, "read back")) {
        *is_given_up = 1;
        wrong_reads++;
        well--;
        failed++;
    }
    *sent += (*next - 1) % REQUESTS_PER_UNIT == REQUESTS_PER_UNIT - 1;
}

static void run_round(const char *address, unsigned long long duration)
{
    DAT_EP_HANDLE endpoint;
    DAT_EVD_HANDLE requests, connections;
    struct grant grant;
    unsigned long long units = 0, next = 0, last = 0, sent = 0, until, patience;
    uint64_t name;
    DAT_LMR_TRIPLET segment;
    DAT_RMR_TRIPLET target;
    DAT_EVENT event;
    int is_over, is_given_up = 0;
    OK(dat_evd_create(ia, REQUESTS_PER_UNIT * UNITS + MESSAGES, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &requests));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections));
    endpoint = make_endpoint(requests, connections);
    is_over = !connected(endpoint, connections, address, &grant, &name);
    unconnected += is_over != 0;
    if (is_over) {
        /* An endpoint that was never connected has no events. */
        check_empty(requests);
        OK(dat_ep_free(endpoint));
        check_quiet(requests, connections);
        OK(dat_evd_free(requests));
        OK(dat_evd_free(connections));
        return;
    }
    until = milliseconds() + duration;
    while (!is_over && milliseconds() < until) {
        /* Posts a random number of units, up to the room of the queue. */
        unsigned more = random_number() % UNITS + 1;
        while (more-- > 0 && last + REQUESTS_PER_UNIT <= next + REQUESTS_PER_UNIT * UNITS) {
            const unsigned slot = (unsigned)(units % UNITS);
            unsigned char *out = memory + slot * UNIT_BYTES, *back = out + UNITS * UNIT_BYTES;
            unsigned char *message = memory + 2 * UNITS * UNIT_BYTES + slot * 64;
            /* After a refused post, the later requests of the unit are not posted. */
            if (last != REQUESTS_PER_UNIT * units)
                break;
            fill(out, UNIT_BYTES, units);
            fill(message, 40, units);
            target = remote_segment(grant.context, grant.address + slot * UNIT_BYTES, UNIT_BYTES);
            segment = segment_of(local, out, UNIT_BYTES);
            if (dat_ep_post_rdma_write(endpoint, 1, &segment, cookie(last), &target, DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS)
                break;
            last++, posted++;
            segment = segment_of(local, back, UNIT_BYTES);
            if (dat_ep_post_rdma_read(endpoint, 1, &segment, cookie(last), &target, DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS)
                break;
            last++, posted++;
            segment = segment_of(local, message, 40);
            if (dat_ep_post_send(endpoint, 1, &segment, cookie(last), DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS)
                break;
            last++, posted++;
            units++;
        }
        while (dat_evd_dequeue(requests, &event) == DAT_SUCCESS)
            take_unit(&event, endpoint, &next, last, &is_given_up, &sent);
        if (dat_evd_dequeue(connections, &event) == DAT_SUCCESS)
            is_over = is_end(&event);
    }
    *(is_over ? &broken : &lasted) += 1;
    (void)dat_ep_disconnect(endpoint, random_number() % 2 ? DAT_CLOSE_ABRUPT_FLAG : DAT_CLOSE_GRACEFUL_FLAG);
    patience = milliseconds() + 20000;
    until = patience + 40000;
    while ((next < last || !is_over) && milliseconds() < until) {
        /* A graceful end waits for posted requests. On soft-RoCE whose link was down, it may wait for ever; an abrupt end still works. */
        if (!is_over && patience != 0 && milliseconds() >= patience) {
            patience = 0;
            abrupt_ends++;
            (void)dat_ep_disconnect(endpoint, DAT_CLOSE_ABRUPT_FLAG);
        }
        while (dat_evd_dequeue(requests, &event) == DAT_SUCCESS)
            take_unit(&event, endpoint, &next, last, &is_given_up, &sent);
        if (dat_evd_dequeue(connections, &event) == DAT_SUCCESS)
            is_over = is_over || is_end(&event);
    }
    if (next < last || !is_over) {
        fprintf(stderr, "of %llu posts %llu never completed; the connection %s\n", last, last - next, is_over ? "ended" : "did not end");
        exit(1);
    }
    check_empty(requests);
    OK(dat_ep_free(endpoint));
    check_quiet(requests, connections);
    OK(dat_evd_free(requests));
    OK(dat_evd_free(connections));
    printf("sent %016llx %llu\n", (unsigned long long)name, sent);
}

int main(int count, char **arguments)
{
    int round;
    CHECK(count >= 3);
    port = strtoul(arguments[2], NULL, 0);
    end_by_signal();
    state = 0x9E3779B97F4A7C15u;
    OK(dat_ia_open(arguments[1], 8, &async, &ia));
    OK(dat_pz_create(ia, &zone));
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &events));
    if (count == 3) {
        serve();
    } else {
        CHECK(count == 7);
        state ^= strtoull(arguments[5], NULL, 0) * 0xD1342543DE82EF95u;
        register_memory(UNITS * (2 * UNIT_BYTES + 64), LOCAL);
        for (round = 0; round < atoi(arguments[6]); round++)
            run_round(arguments[3], strtoull(arguments[4], NULL, 0));
        OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
        printf("stood %llu broke %llu unconnected %llu\n", lasted, broken, unconnected);
        printf("untrue %llu\nabruptly %llu\n", wrong_reads, abrupt_ends);
    }
    CHECK(posted == well + failed);
    printf("posted %llu well %llu failed %llu\n", posted, well, failed);
    return 0;
}
