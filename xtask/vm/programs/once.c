/*
 * Posts and watches: whatever was posted completes once, in the order of the posts, with what it moved intact or with an error; and behind the end of a connection nothing
 * is missing and nothing comes twice.
 *
 * once ADAPTER PORT: takes messages and lets peers write and read, one connection after another, until SIGTERM comes. once ADAPTER PORT ADDRESS MILLISECONDS SEED ROUNDS: writes,
 * reads back and sends for that long, or until the connection breaks; then ends it, in order or abruptly; and so many times. once ADAPTER PORT overrun ADDRESS ROUNDS:
 * posts more than the dispatcher was asked to hold, and nobody takes anything until nothing more can be posted.
 *
 * Prints how many were posted, how many completed well and how many were flushed or failed; and before it, of rounds, how many had a connection that nobody else ended while
 * it lasted, one that broke before, and none. A device that gives a read up and has it completed as if it had been done, which soft-RoCE does, ends the connection by that: such a
 * read counts as failed, nothing that was posted behind it may complete well, and how many there were is printed too; whoever runs this has to know that it was the device. So are
 * connections whose graceful end does not come, and which are ended abruptly then.
 *
 * Each connection has a name that both ends know, and of each one is printed how many messages ended well for who sent them (sent NAME COUNT), and how many the other end
 * took (took NAME COUNT): whoever runs both compares them, because a message that is lost at the end of a connection leaves no gap that one end could see.
 *
 * DTO-01, DTO-05, EPD-02
 */
#define EDITION_1_2
#include "../../../dat-ffi/dat-provider/tests/programs/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/random.h>
#include <time.h>

/* What a unit moves, and how many are under way at most; each is a write, a read of what was written, and a message. */
#define BYTES_OF_UNIT 3000u
#define UNITS 16
#define EACH 3
#define LETTERS 64
/* Milliseconds without a message after which a listener takes a connection for ended: that it was ended may have been lost on the way, and nobody says it twice. */
#define SILENCE 5000
/* Milliseconds for which nothing may come behind an end. */
#define LOOK 200
#define LOCAL ((DAT_MEM_PRIV_FLAGS)(DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG))

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
static unsigned long long stood, broke, unconnected, untrue, abruptly;
static DAT_CONN_QUAL port;
static volatile int over;

static void end(int number)
{
    (void)number;
    over = 1;
}

static unsigned random_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 20);
}

static unsigned long long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000;
}

/* Byte `at` of what the message or unit of that number has. */
static unsigned char byte_of(unsigned long long number, unsigned at)
{
    return (unsigned char)(number * 31 + at * 7 + (at >> 8));
}

static void fill(unsigned char *bytes, unsigned length, unsigned long long number)
{
    unsigned at;
    for (at = 0; at < length; at++)
        bytes[at] = byte_of(number, at);
}

/* Whether these are the bytes of that number; says which is not. */
static int is_intact(const unsigned char *bytes, unsigned length, unsigned long long number)
{
    unsigned at;
    for (at = 0; at < length; at++) {
        if (bytes[at] != byte_of(number, at)) {
            fprintf(stderr, "byte %u of number %llu is %#x and not %#x\n", at, number, bytes[at], byte_of(number, at));
            return 0;
        }
    }
    return 1;
}

static void with_memory(unsigned bytes, DAT_MEM_PRIV_FLAGS privileges)
{
    DAT_REGION_DESCRIPTION description;
    DAT_LMR_HANDLE region;
    DAT_VLEN size;
    DAT_VADDR address;
    CHECK(posix_memalign((void **)&memory, 4096, bytes) == 0);
    memset(memory, 0, bytes);
    description.for_va = memory;
    OK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, description, bytes, zone, privileges, DAT_VA_TYPE_VA, &region, &local, &remote, &size,
                      &address));
}

static DAT_LMR_TRIPLET part(const unsigned char *begin, DAT_VLEN length)
{
    DAT_LMR_TRIPLET part;
    memset(&part, 0, sizeof part);
    part.lmr_context = local;
    part.virtual_address = (DAT_VADDR)(uintptr_t)begin;
    part.segment_length = length;
    return part;
}

/* An endpoint with more room than one has by itself. */
static DAT_EP_HANDLE roomy(DAT_EVD_HANDLE transfers, DAT_EVD_HANDLE connections)
{
    DAT_EP_HANDLE usual, endpoint;
    DAT_EP_PARAM parameters;
    OK(dat_ep_create(ia, zone, transfers, transfers, connections, NULL, &usual));
    OK(dat_ep_query(usual, DAT_EP_FIELD_ALL, &parameters));
    OK(dat_ep_free(usual));
    parameters.ep_attr.max_recv_dtos = LETTERS / 2;
    parameters.ep_attr.max_request_dtos = EACH * UNITS;
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

/* The next completion of a queue: it is that of the oldest post that has none. */
static int taken(const DAT_EVENT *event, DAT_EP_HANDLE endpoint, unsigned long long *next, unsigned long long end_of_posts)
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

/* Nothing is there. */
static void nothing_comes(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    while (dat_evd_dequeue(evd, &event) == DAT_SUCCESS) {
        fprintf(stderr, "event %#x came behind the end\n", event.event_number);
        exit(1);
    }
}

/* Behind the end of an endpoint nothing comes, neither at once nor as long as one looks. */
static void nothing_follows(DAT_EVD_HANDLE transfers, DAT_EVD_HANDLE connections)
{
    const unsigned long long begin = milliseconds();
    do {
        nothing_comes(transfers);
        nothing_comes(connections);
        usleep(5000);
    } while (milliseconds() < begin + LOOK);
    nothing_comes(transfers);
    nothing_comes(connections);
}

/* As `taken`, of a receive into this place: what ended well brought the message of its number. */
static int letter_taken(const DAT_EVENT *event, DAT_EP_HANDLE endpoint, const unsigned char *letter, unsigned long long *next,
                        unsigned long long end_of_posts)
{
    if (!taken(event, endpoint, next, end_of_posts))
        return 0;
    CHECK(event->event_data.dto_completion_event_data.transfered_length == 40);
    if (!is_intact(letter, 40, *next - 1))
        exit(1);
    return 1;
}

/* Messages of one connection. */
static void listen_to(DAT_CR_HANDLE request)
{
    DAT_EP_HANDLE endpoint;
    DAT_EVD_HANDLE receives, connections;
    struct grant grant = {(uint64_t)(uintptr_t)memory, remote};
    unsigned char *letters = memory + UNITS * BYTES_OF_UNIT;
    unsigned long long next = 0, last = 0, end_of_waiting, heard;
    DAT_LMR_TRIPLET room;
    DAT_EVENT event;
    DAT_CR_PARAM asked;
    uint64_t name;
    unsigned long long took = 0;
    int is_over = 0, number;
    OK(dat_cr_query(request, DAT_CR_FIELD_ALL, &asked));
    CHECK(asked.private_data_size >= (DAT_COUNT)sizeof name);
    memcpy(&name, asked.private_data, sizeof name);
    OK(dat_evd_create(ia, LETTERS, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &receives));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections));
    endpoint = roomy(receives, connections);
    for (number = 0; number < LETTERS / 2; number++) {
        room = part(letters + number * 64, 64);
        OK(dat_ep_post_recv(endpoint, 1, &room, cookie(last++), DAT_COMPLETION_DEFAULT_FLAG));
        posted++;
    }
    if (dat_cr_accept(request, endpoint, sizeof grant, &grant) != DAT_SUCCESS) {
        /* It gave up meanwhile; what was posted goes with the endpoint. */
        posted -= last;
        OK(dat_ep_free(endpoint));
        OK(dat_evd_free(receives));
        OK(dat_evd_free(connections));
        return;
    }
    heard = milliseconds();
    while (!is_over && !over && milliseconds() < heard + SILENCE) {
        if (next_of(receives, &event, 2000)) {
            const unsigned char *letter = letters + next % (LETTERS / 2) * 64;
            if (!letter_taken(&event, endpoint, letter, &next, last))
                continue;
            took++;
            heard = milliseconds();
            room = part(letter, 64);
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
            took += letter_taken(&event, endpoint, letters + next % (LETTERS / 2) * 64, &next, last) != 0;
    if (next < last) {
        fprintf(stderr, "of %llu receives %llu never came back\n", last, last - next);
        exit(1);
    }
    nothing_comes(receives);
    OK(dat_ep_free(endpoint));
    /* What ended by silence has its end told by the call that ends it. */
    while (dat_evd_dequeue(connections, &event) == DAT_SUCCESS)
        CHECK(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED || is_end(&event));
    nothing_follows(receives, connections);
    OK(dat_evd_free(receives));
    OK(dat_evd_free(connections));
    printf("took %016llx %llu\n", (unsigned long long)name, took);
}

static void serve(void)
{
    DAT_PSP_HANDLE listener;
    DAT_EVENT event;
    unsigned connections = 0;
    with_memory(UNITS * BYTES_OF_UNIT + LETTERS * 64, DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_psp_create(ia, port, events, DAT_PSP_CONSUMER_FLAG, &listener));
    while (!over) {
        if (!next_of(events, &event, SECOND / 5))
            continue;
        CHECK(event.event_number == DAT_CONNECTION_REQUEST_EVENT);
        listen_to(event.event_data.cr_arrival_event_data.cr_handle);
        connections++;
    }
    OK(dat_psp_free(listener));
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    printf("connections %u\n", connections);
}

/* Connects by a new name; whether that worked. */
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

/* As `taken`, of units: what a read that ended well brought is what was written before, or it is the last that ended well on this connection. Of the
 * three of a unit the message is the last. */
static void unit_taken(const DAT_EVENT *event, DAT_EP_HANDLE endpoint, unsigned long long *next, unsigned long long end_of_posts, int *is_given_up,
                       unsigned long long *sent)
{
    const unsigned long long unit = *next / EACH;
    if (!taken(event, endpoint, next, end_of_posts))
        return;
    if (*is_given_up) {
        fprintf(stderr, "number %llu completed well behind a read that did not bring what was written\n", *next - 1);
        exit(1);
    }
    if ((*next - 1) % EACH == 1 && !is_intact(memory + (UNITS + unit % UNITS) * BYTES_OF_UNIT, BYTES_OF_UNIT, unit)) {
        *is_given_up = 1;
        untrue++;
        well--;
        failed++;
    }
    *sent += (*next - 1) % EACH == EACH - 1;
}

static void use(const char *address, unsigned long long duration)
{
    DAT_EP_HANDLE endpoint;
    DAT_EVD_HANDLE requests, connections;
    struct grant grant;
    unsigned long long units = 0, next = 0, last = 0, sent = 0, until, patience;
    uint64_t name;
    DAT_LMR_TRIPLET piece;
    DAT_RMR_TRIPLET target;
    DAT_EVENT event;
    int is_over, is_given_up = 0;
    OK(dat_evd_create(ia, EACH * UNITS + LETTERS, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &requests));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections));
    endpoint = roomy(requests, connections);
    is_over = !connected(endpoint, connections, address, &grant, &name);
    unconnected += is_over != 0;
    if (is_over) {
        /* An endpoint that was not connected has nothing to tell. */
        nothing_comes(requests);
        OK(dat_ep_free(endpoint));
        nothing_follows(requests, connections);
        OK(dat_evd_free(requests));
        OK(dat_evd_free(connections));
        return;
    }
    until = milliseconds() + duration;
    while (!is_over && milliseconds() < until) {
        /* As many units as there is room for, or fewer. */
        unsigned more = random_number() % UNITS + 1;
        while (more-- > 0 && last + EACH <= next + EACH * UNITS) {
            const unsigned slot = (unsigned)(units % UNITS);
            unsigned char *out = memory + slot * BYTES_OF_UNIT, *back = out + UNITS * BYTES_OF_UNIT;
            unsigned char *letter = memory + 2 * UNITS * BYTES_OF_UNIT + slot * 64;
            /* Of the three, those behind a post that was refused are not tried. */
            if (last != EACH * units)
                break;
            fill(out, BYTES_OF_UNIT, units);
            fill(letter, 40, units);
            memset(&target, 0, sizeof target);
            target.rmr_context = grant.context;
            target.target_address = grant.address + slot * BYTES_OF_UNIT;
            target.segment_length = BYTES_OF_UNIT;
            piece = part(out, BYTES_OF_UNIT);
            if (dat_ep_post_rdma_write(endpoint, 1, &piece, cookie(last), &target, DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS)
                break;
            last++, posted++;
            piece = part(back, BYTES_OF_UNIT);
            if (dat_ep_post_rdma_read(endpoint, 1, &piece, cookie(last), &target, DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS)
                break;
            last++, posted++;
            piece = part(letter, 40);
            if (dat_ep_post_send(endpoint, 1, &piece, cookie(last), DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS)
                break;
            last++, posted++;
            units++;
        }
        while (dat_evd_dequeue(requests, &event) == DAT_SUCCESS)
            unit_taken(&event, endpoint, &next, last, &is_given_up, &sent);
        if (dat_evd_dequeue(connections, &event) == DAT_SUCCESS)
            is_over = is_end(&event);
    }
    *(is_over ? &broke : &stood) += 1;
    (void)dat_ep_disconnect(endpoint, random_number() % 2 ? DAT_CLOSE_ABRUPT_FLAG : DAT_CLOSE_GRACEFUL_FLAG);
    patience = milliseconds() + 20000;
    until = patience + 40000;
    while ((next < last || !is_over) && milliseconds() < until) {
        /* A graceful end waits for what is posted as long as the device does. Soft-RoCE whose link was down may do so for ever; an abrupt one ends that, too. */
        if (!is_over && patience != 0 && milliseconds() >= patience) {
            patience = 0;
            abruptly++;
            (void)dat_ep_disconnect(endpoint, DAT_CLOSE_ABRUPT_FLAG);
        }
        while (dat_evd_dequeue(requests, &event) == DAT_SUCCESS)
            unit_taken(&event, endpoint, &next, last, &is_given_up, &sent);
        if (dat_evd_dequeue(connections, &event) == DAT_SUCCESS)
            is_over = is_over || is_end(&event);
    }
    if (next < last || !is_over) {
        fprintf(stderr, "of %llu posts %llu never completed; the connection %s\n", last, last - next, is_over ? "ended" : "did not end");
        exit(1);
    }
    nothing_comes(requests);
    OK(dat_ep_free(endpoint));
    nothing_follows(requests, connections);
    OK(dat_evd_free(requests));
    OK(dat_evd_free(connections));
    printf("sent %016llx %llu\n", (unsigned long long)name, sent);
}

/* DTO-01: a completion always has a place, also in a dispatcher that was asked for with fewer: an endpoint brings its own, and what would have none is not posted. */
static void overrun(const char *address, int rounds)
{
    DAT_EP_HANDLE endpoint;
    DAT_EVD_HANDLE requests, connections;
    DAT_EVD_PARAM parameters;
    DAT_EVENT event;
    struct grant grant;
    unsigned long long refused = 0, overruns = 0;
    uint64_t name;
    int round;
    with_memory(4096, LOCAL);
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &requests));
    OK(dat_evd_query(requests, DAT_EVD_FIELD_ALL, &parameters));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections));
    OK(dat_ep_create(ia, zone, requests, requests, connections, NULL, &endpoint));
    CHECK(connected(endpoint, connections, address, &grant, &name));
    for (round = 0; round < rounds; round++) {
        unsigned long long last = 0, next = 0;
        DAT_RETURN code = DAT_SUCCESS;
        while (code == DAT_SUCCESS) {
            DAT_LMR_TRIPLET piece = part(memory, 8);
            DAT_RMR_TRIPLET target;
            memset(&target, 0, sizeof target);
            target.rmr_context = grant.context;
            target.target_address = grant.address;
            target.segment_length = 8;
            code = dat_ep_post_rdma_write(endpoint, 1, &piece, cookie(last), &target, DAT_COMPLETION_DEFAULT_FLAG);
            if (code == DAT_SUCCESS)
                last++, posted++;
        }
        if (DAT_GET_TYPE(code) != DAT_INSUFFICIENT_RESOURCES || last <= (unsigned long long)parameters.evd_qlen) {
            fprintf(stderr, "of %d places %llu were taken before %#x\n", parameters.evd_qlen, last, code);
            exit(1);
        }
        /* The one behind the last that was taken. */
        refused++;
        /* All that was posted has happened by then, most of the time. */
        usleep(random_number() % 20000);
        while (next < last)
            if (next_of(requests, &event, 20 * SECOND))
                CHECK(taken(&event, endpoint, &next, last));
        nothing_comes(requests);
    }
    /* An overrun is told there; nothing else has a reason to be. */
    while (dat_evd_dequeue(async, &event) == DAT_SUCCESS)
        overruns++;
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    printf("refused %llu overruns %llu places %d\n", refused, overruns, parameters.evd_qlen);
}

int main(int count, char **arguments)
{
    struct sigaction action;
    int round;
    CHECK(count >= 3);
    port = strtoul(arguments[2], NULL, 0);
    memset(&action, 0, sizeof action);
    action.sa_handler = end;
    CHECK(sigaction(SIGTERM, &action, NULL) == 0);
    state = 0x9E3779B97F4A7C15u;
    OK(dat_ia_open(arguments[1], 8, &async, &ia));
    OK(dat_pz_create(ia, &zone));
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &events));
    if (count == 3) {
        serve();
    } else if (strcmp(arguments[3], "overrun") == 0) {
        CHECK(count == 6);
        overrun(arguments[4], atoi(arguments[5]));
    } else {
        CHECK(count == 7);
        state ^= strtoull(arguments[5], NULL, 0) * 0xD1342543DE82EF95u;
        with_memory(UNITS * (2 * BYTES_OF_UNIT + 64), LOCAL);
        for (round = 0; round < atoi(arguments[6]); round++)
            use(arguments[3], strtoull(arguments[4], NULL, 0));
        OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
        printf("stood %llu broke %llu unconnected %llu\n", stood, broke, unconnected);
        printf("untrue %llu\nabruptly %llu\n", untrue, abruptly);
    }
    CHECK(posted == well + failed);
    printf("posted %llu well %llu failed %llu\n", posted, well, failed);
    return 0;
}
