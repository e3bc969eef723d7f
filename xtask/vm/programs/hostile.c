/*
 * A hostile peer that uses verbs directly, without this project's libraries. Each attempt must be refused with the right error here.
 * The owner of the memory checks after each attempt that nothing has changed.
 *
 * hostile owner ADDRESS ROUNDS SEED: misuses the windows and regions that `owner` offers.
 * hostile serve ADDRESS PORT ROUNDS SEED: misuses the memory that `dat serve` grants.
 * hostile export ADDRESS PORT ROUNDS SEED: sends forged, guessed and malformed greetings and messages of remote shared memory to `dat rsm export`.
 * hostile garbage ADDRESS PORT NUMBER SEED: sends connection requests with malformed private data.
 * hostile flood ADDRESS PORT NUMBER SEED: sends connection requests and drops them at once.
 *
 * Prints lines `counted|KIND|ATTEMPTS|REFUSED`. Exits with 1 if an attempt succeeded or was refused with another error.
 */
#include "offer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MEMORY_BYTES 16384u
#define SECONDS 30
/* The most private data that a request can have, without the header of IP addressing. */
#define MOST_PRIVATE 56

#define CHECK(condition)                                                                                                \
    do {                                                                                                                \
        if (!(condition)) {                                                                                             \
            fprintf(stderr, "%s:%d: %s does not hold (%s)\n", __FILE__, __LINE__, #condition, strerror(errno));         \
            exit(1);                                                                                                    \
        }                                                                                                               \
    } while (0)

struct connection {
    struct rdma_cm_id *id;
    struct ibv_mr *region;
    unsigned char *memory;
    /* Private data of the answer. */
    unsigned char answer[256];
    size_t answered;
};

static const char *address;
static uint16_t port;
static unsigned long long state;

static uint32_t random_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static void close_connection(struct connection *connection)
{
    if (connection->id == NULL)
        return;
    if (connection->id->qp != NULL)
        rdma_destroy_qp(connection->id);
    if (connection->region != NULL)
        ibv_dereg_mr(connection->region);
    rdma_destroy_id(connection->id);
    free(connection->memory);
    memset(connection, 0, sizeof *connection);
}

/* Resolves the address and creates a queue pair with a posted receive. */
static void prepare(struct connection *connection)
{
    struct sockaddr_in peer;
    struct ibv_qp_init_attr attributes;
    memset(connection, 0, sizeof *connection);
    memset(&peer, 0, sizeof peer);
    peer.sin_family = AF_INET;
    peer.sin_port = htons(port);
    CHECK(inet_pton(AF_INET, address, &peer.sin_addr) == 1);
    /* Without an event channel, each call waits for its outcome. */
    CHECK(rdma_create_id(NULL, &connection->id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(connection->id, NULL, (struct sockaddr *)&peer, 10000) == 0);
    CHECK(rdma_resolve_route(connection->id, 10000) == 0);
    memset(&attributes, 0, sizeof attributes);
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 1;
    attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 16;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    CHECK(rdma_create_qp(connection->id, NULL, &attributes) == 0);
    connection->memory = aligned_alloc(PAGE, MEMORY_BYTES);
    CHECK(connection->memory != NULL);
    memset(connection->memory, 0xEE, MEMORY_BYTES);
    connection->region = ibv_reg_mr(connection->id->qp->pd, connection->memory, MEMORY_BYTES,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    CHECK(connection->region != NULL);
    CHECK(rdma_post_recv(connection->id, NULL, connection->memory, PAGE, connection->region) == 0);
}

/* Connects; returns 0, the reason of the peer's rejection, or a negative number for any other failure. */
static int connect_to_peer(struct connection *connection, const void *private_data, size_t length)
{
    struct rdma_conn_param parameters;
    const struct rdma_cm_event *event;
    memset(&parameters, 0, sizeof parameters);
    parameters.private_data = private_data;
    parameters.private_data_len = (uint8_t)length;
    parameters.initiator_depth = 1;
    parameters.responder_resources = 1;
    parameters.retry_count = 3;
    parameters.rnr_retry_count = 1;
    if (rdma_connect(connection->id, &parameters) != 0) {
        event = connection->id->event;
        if (event != NULL && event->event == RDMA_CM_EVENT_REJECTED)
            return event->status;
        return -errno;
    }
    event = connection->id->event;
    if (event != NULL && event->param.conn.private_data != NULL) {
        connection->answered = event->param.conn.private_data_len;
        memcpy(connection->answer, event->param.conn.private_data, connection->answered);
    }
    return 0;
}

/* Waits for the next completion of the queue. */
static struct ibv_wc completion(struct ibv_cq *queue)
{
    struct ibv_wc done;
    time_t end = time(NULL) + SECONDS;
    int count;
    while ((count = ibv_poll_cq(queue, 1, &done)) == 0) {
        CHECK(time(NULL) < end);
        usleep(200);
    }
    CHECK(count == 1);
    return done;
}

static enum ibv_wc_status post(struct connection *connection, enum ibv_wr_opcode opcode, uint64_t remote, uint32_t key, uint32_t length)
{
    struct ibv_send_wr request, *bad;
    struct ibv_sge segment;
    memset(&request, 0, sizeof request);
    segment.addr = (uintptr_t)connection->memory + PAGE;
    segment.length = length;
    segment.lkey = connection->region->lkey;
    request.sg_list = &segment;
    request.num_sge = 1;
    request.opcode = opcode;
    switch (opcode) {
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        request.wr.atomic.remote_addr = remote;
        request.wr.atomic.rkey = key;
        request.wr.atomic.compare_add = 1;
        request.wr.atomic.swap = 1;
        break;
    case IBV_WR_SEND_WITH_INV:
        request.invalidate_rkey = key;
        break;
    default:
        request.wr.rdma.remote_addr = remote;
        request.wr.rdma.rkey = key;
        break;
    }
    CHECK(ibv_post_send(connection->id->qp, &request, &bad) == 0);
    return completion(connection->id->send_cq).status;
}

/* The completion statuses that an attempt may have. */
#define BIT(status) (1u << (status))
#define DENIED BIT(IBV_WC_REM_ACCESS_ERR)
#define ANY_DENIAL (DENIED | BIT(IBV_WC_REM_INV_REQ_ERR) | BIT(IBV_WC_REM_OP_ERR))
/* If a receive is too short, soft-RoCE reports a failure of the queue pair, or does not answer if the receiver ends the connection first. */
#define INVALID (BIT(IBV_WC_REM_INV_REQ_ERR) | BIT(IBV_WC_REM_OP_ERR) | BIT(IBV_WC_RETRY_EXC_ERR))
/* If a key cannot be invalidated, the owner's receive fails and its connection ends. The sender may have got its acknowledgement before. */
#define REFUSED_AT_OWNER (ANY_DENIAL | BIT(IBV_WC_SUCCESS))
#define NOT_READY BIT(IBV_WC_RNR_RETRY_EXC_ERR)
/* The receiver may end the connection before its adapter has acknowledged the message. */
#define SENT (BIT(IBV_WC_SUCCESS) | BIT(IBV_WC_WR_FLUSH_ERR) | BIT(IBV_WC_RETRY_EXC_ERR))

/* The number of attempts of each kind, and of correct refusals. */
#define MOST_RESULTS 64
static struct {
    const char *name;
    unsigned tried, refused;
} results[MOST_RESULTS];
static unsigned failures;

static void count(const char *kind, int refused)
{
    int at = 0;
    while (results[at].name != NULL && strcmp(results[at].name, kind) != 0)
        at++;
    CHECK(at < MOST_RESULTS - 1);
    results[at].name = kind;
    results[at].tried++;
    results[at].refused += refused != 0;
    failures += refused == 0;
    if (!refused)
        printf("%s: not refused as it has to be, after %u that were\n", kind, results[at].refused);
}

static void count_status(const char *kind, unsigned expected, enum ibv_wc_status status)
{
    int fits = (expected & BIT(status)) != 0;
    if (!fits)
        printf("%s: %s\n", kind, ibv_wc_status_str(status));
    count(kind, fits);
}

/* Sends an invalid message, after which the receiver ends the connection. */
static void send_invalid(struct connection *connection, uint32_t length)
{
    enum ibv_wc_status status = post(connection, IBV_WR_SEND, 0, 0, length);
    int is_sent = (SENT & BIT(status)) != 0;
    if (!is_sent)
        printf("an invalid message of %u bytes: %s\n", length, ibv_wc_status_str(status));
    CHECK(is_sent);
}

static int report(void)
{
    int at;
    for (at = 0; results[at].name != NULL; at++)
        printf("counted|%s|%u|%u\n", results[at].name, results[at].tried, results[at].refused);
    return failures != 0;
}

/* Connects to the owner and receives its offer. */
static struct offer connect_to_owner(struct connection *connection)
{
    struct greeting greeting = {GREETING, HOSTILE};
    struct offer offer;
    struct ibv_wc done;
    int tries, code = -1;
    for (tries = 0; tries < 100 && code != 0; tries++) {
        prepare(connection);
        code = connect_to_peer(connection, &greeting, sizeof greeting);
        if (code != 0) {
            /* Other peers may use all connections of the owner. */
            close_connection(connection);
            usleep(100000);
        }
    }
    CHECK(code == 0);
    done = completion(connection->id->recv_cq);
    CHECK(done.status == IBV_WC_SUCCESS && done.byte_len == sizeof offer);
    memcpy(&offer, connection->memory, sizeof offer);
    memset(connection->memory, 0xEE, PAGE);
    return offer;
}

static const struct grant *grant_at(const struct offer *offer, size_t where)
{
    return (const struct grant *)((const char *)offer + where);
}

#define AT(field) offsetof(struct offer, field)

/* An attempt: the key of one grant, and an address relative to the start of a grant. */
struct attempt {
    const char *kind;
    enum ibv_wr_opcode opcode;
    size_t key, address;
    int64_t from;
    uint32_t length;
    unsigned expected;
};

static const struct attempt attempts[] = {
    {"read through a window to write", IBV_WR_RDMA_READ, AT(writable), AT(writable), 0, 8, DENIED},
    {"write through a window to read", IBV_WR_RDMA_WRITE, AT(readable), AT(readable), 0, 8, DENIED},
    {"atomic through a window to write", IBV_WR_ATOMIC_FETCH_AND_ADD, AT(writable), AT(writable), 0, 8, ANY_DENIAL},
    {"atomic through a window to read", IBV_WR_ATOMIC_CMP_AND_SWP, AT(readable), AT(readable), 0, 8, ANY_DENIAL},
    {"beyond the end", IBV_WR_RDMA_WRITE, AT(writable), AT(writable), GRANTED, 1, DENIED},
    {"beyond the end", IBV_WR_RDMA_READ, AT(readable), AT(readable), GRANTED, 1, DENIED},
    {"across the end", IBV_WR_RDMA_WRITE, AT(writable), AT(writable), GRANTED - 4, 8, DENIED},
    {"across the end", IBV_WR_RDMA_READ, AT(readable), AT(readable), GRANTED - 4, 8, DENIED},
    {"longer than the window", IBV_WR_RDMA_WRITE, AT(writable), AT(writable), 0, 2 * PAGE, DENIED},
    {"longer than the window", IBV_WR_RDMA_READ, AT(readable), AT(readable), 0, 2 * PAGE, DENIED},
    {"before the begin", IBV_WR_RDMA_WRITE, AT(writable), AT(writable), -1, 1, DENIED},
    {"before the begin", IBV_WR_RDMA_READ, AT(readable), AT(readable), -8, 16, DENIED},
    {"far away", IBV_WR_RDMA_WRITE, AT(writable), AT(writable), INT64_MIN, 8, DENIED},
    {"another window's memory", IBV_WR_RDMA_WRITE, AT(writable), AT(readable), 0, 8, DENIED},
    {"another window's memory", IBV_WR_RDMA_READ, AT(readable), AT(writable), 0, 8, DENIED},
    {"stale: bound elsewhere since", IBV_WR_RDMA_WRITE, AT(rebound), AT(rebound), 0, 8, DENIED},
    {"stale: bound elsewhere since", IBV_WR_RDMA_READ, AT(rebound), AT(moved), 0, 8, DENIED},
    {"stale: the old memory, the new key", IBV_WR_RDMA_READ, AT(moved), AT(rebound), 0, 8, DENIED},
    {"stale: unbound since", IBV_WR_RDMA_WRITE, AT(unbound), AT(unbound), 0, 8, DENIED},
    {"stale: unbound since", IBV_WR_RDMA_READ, AT(unbound), AT(unbound), 0, 8, DENIED},
    {"stale: freed since", IBV_WR_RDMA_WRITE, AT(freed), AT(freed), 0, 8, DENIED},
    {"stale: freed since", IBV_WR_RDMA_READ, AT(freed), AT(freed), 0, 8, DENIED},
    {"a region without remote rights", IBV_WR_RDMA_WRITE, AT(secret), AT(secret), 0, 8, DENIED},
    {"a region without remote rights", IBV_WR_RDMA_READ, AT(secret), AT(secret), 0, 8, DENIED},
    {"another protection zone's region", IBV_WR_RDMA_WRITE, AT(other), AT(other), 0, 8, DENIED},
    {"another protection zone's region", IBV_WR_RDMA_READ, AT(other), AT(other), 0, 8, DENIED},
    {"another protection zone's window", IBV_WR_RDMA_WRITE, AT(other_window), AT(other_window), 0, 8, DENIED},
    {"another protection zone's window", IBV_WR_RDMA_READ, AT(other_window), AT(other_window), 0, 8, DENIED},
    {"invalidate a window", IBV_WR_SEND_WITH_INV, AT(writable), AT(writable), 0, 8, REFUSED_AT_OWNER},
    {"invalidate another zone's window", IBV_WR_SEND_WITH_INV, AT(other_window), AT(other_window), 0, 8, REFUSED_AT_OWNER},
    {"invalidate another zone's region", IBV_WR_SEND_WITH_INV, AT(other), AT(other), 0, 8, REFUSED_AT_OWNER},
    {"a message longer than its buffer", IBV_WR_SEND, AT(writable), AT(writable), 0, PAGE, INVALID},
};

/* Connects to the owner; if the attempt needs it, at a time when the owner has a window in the other zone. */
static struct offer connect_for_attempt(struct connection *connection, const struct attempt *attempt)
{
    int tries;
    for (tries = 0; tries < 100; tries++) {
        struct offer offer = connect_to_owner(connection);
        if (attempt->key != AT(other_window) || offer.other_window.length != 0)
            return offer;
        close_connection(connection);
        usleep(50000);
    }
    CHECK(!"an honest peer has a window");
    exit(1);
}

/* Checks that permitted operations succeed; otherwise refusals would prove nothing. */
static void check_allowed_access(void)
{
    struct connection connection;
    struct offer offer = connect_to_owner(&connection);
    unsigned char *local = connection.memory + PAGE;
    unsigned at;
    CHECK(post(&connection, IBV_WR_RDMA_WRITE, offer.writable.address, offer.writable.context, GRANTED) == IBV_WC_SUCCESS);
    memset(local, 0, PAGE);
    CHECK(post(&connection, IBV_WR_RDMA_READ, offer.readable.address, offer.readable.context, GRANTED) == IBV_WC_SUCCESS);
    for (at = 1; at < GRANTED; at++)
        CHECK(local[at] != 0 && local[at] == local[0]);
    CHECK(post(&connection, IBV_WR_RDMA_READ, offer.moved.address, offer.moved.context, GRANTED) == IBV_WC_SUCCESS);
    CHECK(local[0] != 0);
    CHECK(rdma_disconnect(connection.id) == 0);
    close_connection(&connection);
}

/* Returns 1 if no memory of the peer was read. */
static int nothing_read(const struct connection *connection)
{
    unsigned at;
    for (at = 0; at < 2 * PAGE; at++)
        if (connection->memory[PAGE + at] != 0xEE)
            return 0;
    return 1;
}

static void attempt_access(const char *kind, enum ibv_wr_opcode opcode, uint32_t key, uint64_t remote, uint32_t length, unsigned expected,
                struct connection *connection)
{
    count_status(kind, expected, post(connection, opcode, remote, key, length));
    if (!nothing_read(connection)) {
        printf("%s: memory was read\n", kind);
        failures++;
    }
    close_connection(connection);
}

/* Returns a key that is not in use. */
static uint32_t guess_key(const struct offer *offer)
{
    const struct grant *known = (const struct grant *)offer;
    size_t number = sizeof *offer / sizeof *known, at;
    for (;;) {
        /* Half of the guesses differ from a known key by one bit. */
        uint32_t guess = random_number();
        if (guess & 1)
            guess = known[random_number() % number].context ^ (1u << random_number() % 16);
        for (at = 0; at < number && known[at].context != guess; at++)
            ;
        if (at == number)
            return guess;
    }
}

static void attack_owner(unsigned rounds)
{
    struct connection connection;
    struct offer offer, before;
    unsigned round;
    size_t at;
    memset(&before, 0, sizeof before);
    for (round = 0; round < rounds; round++) {
        check_allowed_access();
        for (at = 0; at < sizeof attempts / sizeof *attempts; at++) {
            const struct attempt *attempt = &attempts[at];
            const struct grant *key, *target;
            offer = connect_for_attempt(&connection, attempt);
            key = grant_at(&offer, attempt->key);
            target = grant_at(&offer, attempt->address);
            attempt_access(attempt->kind, attempt->opcode, key->context, target->address + (uint64_t)attempt->from, attempt->length,
                attempt->expected, &connection);
            before = offer;
        }
        offer = connect_to_owner(&connection);
        attempt_access("replay: of a connection that has ended", IBV_WR_RDMA_WRITE, before.writable.context, before.writable.address, 8, DENIED,
            &connection);
        offer = connect_to_owner(&connection);
        attempt_access("replay: of a connection that has ended", IBV_WR_RDMA_READ, before.readable.context, before.readable.address, 8, DENIED,
            &connection);
        for (at = 0; at < 8; at++) {
            offer = connect_to_owner(&connection);
            attempt_access("a guessed key", at % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, guess_key(&offer), offer.writable.address, 8, DENIED,
                &connection);
        }
        /* The owner posts one receive. */
        connect_to_owner(&connection);
        CHECK(post(&connection, IBV_WR_SEND, 0, 0, 8) == IBV_WC_SUCCESS);
        attempt_access("more messages than receives", IBV_WR_SEND, 0, 0, 8, NOT_READY, &connection);
    }
}

/* The first byte of a refusal, and requests of `dat serve`: see dat-cli/src/remote/protocol.rs. */
#define REFUSED 21
static size_t request_to_serve(unsigned char *request, uint16_t kind)
{
    static const unsigned char words[24] = {'D', 'A', 'T', 'c', 2, 0, 0, 0, 2, 0, 0xE8, 3};
    memset(request, 0, MOST_PRIVATE);
    memcpy(request, words, sizeof words);
    request[6] = (unsigned char)kind;
    /* The length of the private data, plus one: see backend-verbs/src/private_data.rs. */
    request[MOST_PRIVATE - 1] = 24 + 1;
    return MOST_PRIVATE;
}

/* Connects to `dat serve`, which grants two slots of GRANTED bytes to write (2) or to read (3). */
static struct grant connect_to_serve(struct connection *connection, uint16_t kind)
{
    unsigned char request[64];
    struct grant grant;
    size_t length = request_to_serve(request, kind);
    int tries, code = -1;
    for (tries = 0; tries < 100 && code != 0; tries++) {
        prepare(connection);
        code = connect_to_peer(connection, request, length);
        if (code != 0) {
            close_connection(connection);
            usleep(100000);
        }
    }
    CHECK(code == 0);
    CHECK(connection->answered >= 26);
    memcpy(&grant.context, connection->answer + 6, 4);
    memcpy(&grant.address, connection->answer + 10, 8);
    memcpy(&grant.length, connection->answer + 18, 4);
    CHECK(grant.length == 2 * GRANTED);
    return grant;
}

static void attack_serve(unsigned rounds)
{
    struct connection connection, victim;
    struct grant grant, victims_grant, before;

    unsigned round, at, length;
    struct ibv_wc done;
    for (round = 0; round < rounds; round++) {
        grant = connect_to_serve(&connection, 2);
        CHECK(post(&connection, IBV_WR_RDMA_WRITE, grant.address, grant.context, grant.length) == IBV_WC_SUCCESS);
        /* The device sends no reads if the peer accepts none, so a read of writable memory cannot be attempted. */
        close_connection(&connection);
        grant = connect_to_serve(&connection, 3);
        attempt_access("write to readable memory", IBV_WR_RDMA_WRITE, grant.context, grant.address, 8, DENIED, &connection);
        grant = connect_to_serve(&connection, 2);
        attempt_access("beyond the end", IBV_WR_RDMA_WRITE, grant.context, grant.address + grant.length, 1, DENIED, &connection);
        grant = connect_to_serve(&connection, 2);
        attempt_access("across the end", IBV_WR_RDMA_WRITE, grant.context, grant.address + grant.length - 4, 8, DENIED, &connection);
        grant = connect_to_serve(&connection, 3);
        attempt_access("before the begin", IBV_WR_RDMA_READ, grant.context, grant.address - 8, 8, DENIED, &connection);
        grant = connect_to_serve(&connection, 2);
        attempt_access("far away", IBV_WR_RDMA_WRITE, grant.context, random_number(), 8, DENIED, &connection);
        before = grant;
        grant = connect_to_serve(&connection, 2);
        if (before.context != grant.context)
            attempt_access("replay: of a connection that has ended", IBV_WR_RDMA_WRITE, before.context, before.address, 8, DENIED, &connection);
        else
            close_connection(&connection);
        for (at = 2; at <= 3; at++) {
            victims_grant = connect_to_serve(&victim, (uint16_t)at);
            connect_to_serve(&connection, (uint16_t)at);
            attempt_access("another client's memory", at == 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, victims_grant.context, victims_grant.address, 8, DENIED,
                &connection);
            /* The victim's connection still works. */
            CHECK(post(&victim, at == 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, victims_grant.address, victims_grant.context, 8) == IBV_WC_SUCCESS);
            CHECK(rdma_disconnect(victim.id) == 0);
            close_connection(&victim);
        }
        for (at = 0; at < 4; at++) {
            grant = connect_to_serve(&connection, 2);
            attempt_access("a guessed key", IBV_WR_RDMA_WRITE, grant.context ^ (1u << random_number() % 32), grant.address, 8, DENIED, &connection);
        }
        grant = connect_to_serve(&connection, 2);
        attempt_access("a message longer than its buffer", IBV_WR_SEND, 0, 0, 2 * PAGE, INVALID, &connection);
        /* Malformed messages are answered, and the connection ends. */
        connect_to_serve(&connection, 2);
        length = random_number() % 257;
        for (at = 0; at < length; at++)
            connection.memory[PAGE + at] = (unsigned char)random_number();
        connection.memory[PAGE] |= 0x80;
        send_invalid(&connection, length);
        done = completion(connection.id->recv_cq);
        /* The connection may end before the answer arrives. */
        count("a malformed message", done.status == IBV_WC_WR_FLUSH_ERR || (done.status == IBV_WC_SUCCESS && connection.memory[0] == REFUSED));
        close_connection(&connection);
    }
}

/* Greetings and messages of remote shared memory: see dat-rsm/src/link/wire.rs. */
#define MESSAGE_BYTES 64
#define GREETING_BYTES 32
#define MESSAGE_RECEIVES 8
enum message_kind { CREDIT = 1, CONNECT, ACCEPT, REFUSE, DISCONNECT, REVOKE, REBIND, ACKNOWLEDGE, SIGNAL, SIGNAL_IMPORTERS };
/* The default number of an exported segment, and its full permissions. */
#define SEGMENT 0x600000u
#define READ_AND_WRITE 0600u
static uint64_t generation;

static void store_little_endian(unsigned char *to, uint64_t value, unsigned bytes)
{
    while (bytes-- > 0) {
        *to++ = (unsigned char)value;
        value >>= 8;
    }
}

static uint64_t load_word(const unsigned char *from)
{
    uint64_t word = 0;
    unsigned at;
    for (at = 8; at-- > 0;)
        word = word << 8 | from[at];
    return word;
}

/* Writes a valid greeting as private data. */
static void write_greeting(unsigned char *data)
{
    static const unsigned char magic[4] = {'R', 'S', 'M', 1};
    struct in_addr own;
    CHECK(inet_pton(AF_INET, address, &own) == 1);
    memset(data, 0, MOST_PRIVATE);
    memcpy(data, magic, sizeof magic);
    /* A node's number is its address; this node is on the exporter's host. */
    store_little_endian(data + 4, ntohl(own.s_addr), 4);
    store_little_endian(data + 8, generation, 8);
    store_little_endian(data + 16, 0x1000, 8);
    store_little_endian(data + 24, 1, 4);
    store_little_endian(data + 28, MESSAGE_RECEIVES, 2);
    data[30] = 1;
    /* The length of the private data, plus one: see backend-verbs/src/private_data.rs. */
    data[MOST_PRIVATE - 1] = GREETING_BYTES + 1;
}

/* Writes a valid message without contents into the send buffer. */
static unsigned char *new_message(struct connection *connection, enum message_kind kind)
{
    unsigned char *data = connection->memory + PAGE;
    static const unsigned char magic[4] = {'R', 'S', 'M', 1};
    memset(data, 0, MESSAGE_BYTES);
    memcpy(data, magic, sizeof magic);
    data[4] = (unsigned char)kind;
    /* The number of messages that the exporter may send. */
    store_little_endian(data + 6, 1, 2);
    store_little_endian(data + 8, generation, 8);
    return data;
}

static void send_message(struct connection *connection)
{
    CHECK(post(connection, IBV_WR_SEND, 0, 0, MESSAGE_BYTES) == IBV_WC_SUCCESS);
}

/* Connects to the exporter with the greeting of an importer. */
static void connect_session(struct connection *connection)
{
    unsigned char data[MOST_PRIVATE];
    unsigned tries, at;
    int code = -1;
    for (tries = 0; tries < 100 && code != 0; tries++) {
        generation = (uint64_t)random_number() << 32 | random_number();
        write_greeting(data);
        prepare(connection);
        for (at = 0; at < MESSAGE_RECEIVES - 1; at++) {
            unsigned char *buffer = connection->memory + 3 * PAGE + at * MESSAGE_BYTES;
            CHECK(rdma_post_recv(connection->id, buffer, buffer, MESSAGE_BYTES, connection->region) == 0);
        }
        code = connect_to_peer(connection, data, sizeof data);
        if (code != 0) {
            /* The connections of a node are limited, and recently ended ones count. */
            CHECK(code == 28);
            close_connection(connection);
            usleep(100000);
        }
    }
    CHECK(code == 0);
    CHECK(connection->answered >= GREETING_BYTES && memcmp(connection->answer, "RSM\1", 4) == 0);
}

/* Returns the next message that is more than credit, or null if the connection ends first. */
static const unsigned char *next_message(struct connection *connection)
{
    for (;;) {
        struct ibv_wc done = completion(connection->id->recv_cq);
        const unsigned char *message = done.wr_id == 0 ? connection->memory : (const unsigned char *)(uintptr_t)done.wr_id;
        if (done.status != IBV_WC_SUCCESS)
            return NULL;
        CHECK(done.byte_len == MESSAGE_BYTES && memcmp(message, "RSM\1", 4) == 0);
        if (message[4] != CREDIT)
            return message;
    }
}

/* Returns 1 if the exporter ends the connection. */
static int exporter_disconnects(struct connection *connection)
{
    struct pollfd look = {connection->id->channel->fd, POLLIN, 0};
    struct rdma_cm_event *event;
    int is_end;
    if (poll(&look, 1, SECONDS * 1000) != 1) {
        printf("no event of the connection within %d s\n", SECONDS);
        return 0;
    }
    CHECK(rdma_get_cm_event(connection->id->channel, &event) == 0);
    /* A connection that ends before the exporter has seen it established is rejected. */
    is_end = event->event == RDMA_CM_EVENT_DISCONNECTED || event->event == RDMA_CM_EVENT_REJECTED;
    if (event->event != RDMA_CM_EVENT_DISCONNECTED)
        printf("the connection ends with %s\n", rdma_event_str(event->event));
    CHECK(rdma_ack_cm_event(event) == 0);
    return is_end;
}

/* Requests a connection to a segment; returns the answer. */
static const unsigned char *request_segment(struct connection *connection, uint64_t word, uint64_t resume, uint32_t segment, uint32_t permission)
{
    unsigned char *data = new_message(connection, CONNECT);
    const unsigned char *answer;
    store_little_endian(data + 16, word, 8);
    store_little_endian(data + 24, resume, 8);
    store_little_endian(data + 32, segment, 4);
    store_little_endian(data + 36, permission, 4);
    send_message(connection);
    answer = next_message(connection);
    return answer != NULL && load_word(answer + 16) == word ? answer : NULL;
}

static int is_refusal(const unsigned char *answer)
{
    return answer != NULL && answer[4] == REFUSE;
}

/* Connects to the segment; returns the exporter's number of the connection, and the grant. */
static uint64_t connect_to_segment(struct connection *connection, uint32_t permission, struct grant *grant)
{
    const unsigned char *answer;
    connect_session(connection);
    answer = request_segment(connection, 5, 0, SEGMENT, permission);
    CHECK(answer != NULL && answer[4] == ACCEPT);
    grant->length = (uint32_t)load_word(answer + 32);
    grant->address = load_word(answer + 40);
    grant->context = (uint32_t)load_word(answer + 56);
    /* A later check finds whether data was read into it. */
    memset(connection->memory + PAGE, 0xEE, MESSAGE_BYTES);
    return load_word(answer + 24);
}

/* Sends a malformed message, which ends its connection. */
static void send_malformed(unsigned kind, struct connection *connection)
{
    unsigned char *data;
    unsigned at, length = MESSAGE_BYTES;
    const char *name = "a malformed message";
    connect_session(connection);
    data = new_message(connection, CREDIT);
    switch (kind) {
    case 0:
        name = "a random message";
        for (at = 0; at < MESSAGE_BYTES; at++)
            data[at] = (unsigned char)random_number();
        data[0] |= 0x80;
        break;
    case 1:
        name = "a random message with a valid header";
        for (at = 16; at < MESSAGE_BYTES; at++)
            data[at] = (unsigned char)random_number();
        /* The unused bytes of a valid message are zero. */
        data[MESSAGE_BYTES - 1] |= 1;
        break;
    case 2:
        data[3] = 2;
        break;
    case 3:
        data[4] = (unsigned char)(random_number() % 2 ? 0 : 11 + random_number() % 245);
        break;
    case 4:
        data[5] = 1;
        break;
    case 5:
        name = "a message of another incarnation";
        data[8] ^= 1;
        break;
    case 6:
    case 7:
        name = "a message that is too short, after a valid one";
        /* Each receive buffer has had a valid message. */
        for (at = 0; at < 36; at++) {
            (void)new_message(connection, CREDIT);
            send_message(connection);
            /* An answer shows that the exporter has processed them all. */
            if (at % 6 == 5)
                CHECK(request_segment(connection, at, 0, SEGMENT + 1, READ_AND_WRITE) != NULL);
        }
        length = kind == 6 ? 0 : 1 + random_number() % (MESSAGE_BYTES - 1);
        break;
    default:
        name = "a message that is too long";
        length = MESSAGE_BYTES + 1 + random_number() % 64;
        (void)post(connection, IBV_WR_SEND, 0, 0, length);
        count(name, exporter_disconnects(connection));
        close_connection(connection);
        return;
    }
    send_invalid(connection, length);
    count(name, exporter_disconnects(connection));
    close_connection(connection);
}

/* Sends numbers of other connections, and unrequested answers: they have no effect, and the exporter continues. */
static void send_forged(struct connection *connection)
{
    static const enum message_kind forged[] = {ACCEPT, REFUSE, DISCONNECT, REVOKE, REBIND, ACKNOWLEDGE, SIGNAL, SIGNAL_IMPORTERS};
    unsigned kind, at;
    struct grant grant;
    uint64_t own = connect_to_segment(connection, READ_AND_WRITE, &grant);
    for (kind = 0; kind < sizeof forged / sizeof *forged; kind++) {
        unsigned char *data = new_message(connection, forged[kind]);
        const unsigned words = forged[kind] == ACCEPT ? 5 : forged[kind] == REBIND ? 3 : forged[kind] == REVOKE ? 2 : 1;
        for (at = 0; at < words; at++)
            store_little_endian(data + 16 + 8 * at, own + random_number() % 40 + 1, 8);
        if (forged[kind] == REFUSE)
            store_little_endian(data + 24, 1, 4);
        if (forged[kind] == ACCEPT || forged[kind] == REBIND)
            store_little_endian(data + 16 + 8 * words, random_number(), 4);
        send_message(connection);
        /* A revocation or change is acknowledged for any number, and an unrequested grant is returned. */
        if (forged[kind] == ACCEPT || forged[kind] == REVOKE || forged[kind] == REBIND) {
            const unsigned char *answer = next_message(connection);
            CHECK(answer != NULL && answer[4] == (forged[kind] == ACCEPT ? DISCONNECT : ACKNOWLEDGE));
        }
        count("a message with a guessed id", is_refusal(request_segment(connection, 6, 0, SEGMENT + 1, READ_AND_WRITE)));
        if (kind % 3 == 2) {
            /* The exporter has no more receives for answers. */
            close_connection(connection);
            own = connect_to_segment(connection, READ_AND_WRITE, &grant);
        }
    }
    close_connection(connection);
}

static void attack_export(unsigned rounds)
{
    struct connection connection;
    struct grant grant;
    unsigned char data[MOST_PRIVATE];
    unsigned round, at;
    for (round = 0; round < rounds; round++) {
        for (at = 0; at < 9; at++) {
            unsigned length = sizeof data;
            const char *name = "a false greeting";
            generation = random_number();
            write_greeting(data);
            switch (at) {
            case 0: data[3] = 2; break;
            case 1: store_little_endian(data + 4, random_number() | 0x80000000u, 4); break;
            case 2: store_little_endian(data + 4, 0, 4); break;
            case 3: store_little_endian(data + 24, 0, 4); break;
            case 4: store_little_endian(data + 28, 0, 2); break;
            case 5: data[30] = (unsigned char)(3 + random_number() % 253); break;
            case 6: data[31] = (unsigned char)(2 + random_number() % 254); break;
            case 7: length = random_number() % 29; break;
            default:
                name = "a random greeting";
                for (length = 4; length < sizeof data; length++)
                    data[length] = (unsigned char)random_number();
            }
            prepare(&connection);
            count(name, connect_to_peer(&connection, data, length) == 28);
            close_connection(&connection);
        }
        for (at = 0; at < 9; at++)
            send_malformed(at, &connection);
        send_forged(&connection);
        connect_session(&connection);
        count("a missing segment", is_refusal(request_segment(&connection, 1, 0, random_number() | 0x80000000u, READ_AND_WRITE)));
        count("undefined rights", is_refusal(request_segment(&connection, 2, 0, SEGMENT, 0700)));
        count("undefined rights", is_refusal(request_segment(&connection, 3, 0, SEGMENT, random_number() | 0x1000)));
        count("a connection that was never granted", is_refusal(request_segment(&connection, 4, 1 + random_number() % 4, SEGMENT, READ_AND_WRITE)));
        close_connection(&connection);
        connect_to_segment(&connection, 0400, &grant);
        attempt_access("write to readable memory", IBV_WR_RDMA_WRITE, grant.context, grant.address, 8, DENIED, &connection);
        connect_to_segment(&connection, 0200, &grant);
        attempt_access("read writable memory", IBV_WR_RDMA_READ, grant.context, grant.address, 8, DENIED, &connection);
        connect_to_segment(&connection, READ_AND_WRITE, &grant);
        attempt_access("across the end", IBV_WR_RDMA_WRITE, grant.context, grant.address + grant.length - 4, 8, DENIED, &connection);
        connect_to_segment(&connection, READ_AND_WRITE, &grant);
        attempt_access("before the begin", IBV_WR_RDMA_READ, grant.context, grant.address - 8, 8, DENIED, &connection);
        connect_to_segment(&connection, READ_AND_WRITE, &grant);
        attempt_access("a guessed key", IBV_WR_RDMA_WRITE, grant.context ^ (1u << random_number() % 32), grant.address, 8, DENIED, &connection);
    }
}

/* Sends malformed requests; none may be accepted, and the listening consumer answers each. */
static void garbage(unsigned number)
{
    struct connection connection;
    unsigned char data[256];
    unsigned round, at;
    int code;
    for (round = 0; round < number; round++) {
        size_t length = round < 2 ? round * MOST_PRIVATE : random_number() % (MOST_PRIVATE + 1);
        for (at = 0; at < sizeof data; at++)
            data[at] = (unsigned char)random_number();
        if (round % 4 == 2) {
            /* A valid request that is cut short. */
            request_to_serve(data, 2);
            length = random_number() % 24;
        }
        prepare(&connection);
        code = connect_to_peer(&connection, data, length);
        if (code != 28)
            printf("garbage of %zu bytes: %d\n", length, code);
        count(length == MOST_PRIVATE ? "the most private data" : "random private data", code == 28);
        close_connection(&connection);
        prepare(&connection);
        code = connect_to_peer(&connection, data, MOST_PRIVATE + 1 + random_number() % 190);
        /* This host's kernel refuses it: a request has no room for it. */
        if (code != -EINVAL)
            printf("oversized: %d\n", code);
        count("too much private data: refused by the sender's kernel", code == -EINVAL);
        close_connection(&connection);
    }
}

/* Sends requests and drops them, before an answer can arrive or just after it. The job checks that no objects are left. */
static void flood(unsigned number)
{
    struct greeting greeting = {GREETING, SILENT};
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct connection connection;
    unsigned char request[64];
    unsigned round;
    CHECK(channel != NULL);
    for (round = 0; round < number; round++) {
        struct rdma_conn_param parameters;
        size_t length = port == OWNER_PORT ? sizeof greeting : request_to_serve(request, 2);
        memset(&parameters, 0, sizeof parameters);
        parameters.private_data = port == OWNER_PORT ? (const void *)&greeting : request;
        parameters.private_data_len = (uint8_t)length;
        parameters.initiator_depth = parameters.responder_resources = 1;
        prepare(&connection);
        /* From here on the calls do not wait. */
        CHECK(rdma_migrate_id(connection.id, channel) == 0);
        CHECK(rdma_connect(connection.id, &parameters) == 0);
        if (random_number() % 2)
            usleep(random_number() % 20000);
        close_connection(&connection);
    }
    /* The outcome of dropped requests is not known. */
    printf("counted|dropped requests, which have no outcome|%u|0\n", number);
    rdma_destroy_event_channel(channel);
}

int main(int number, char **arguments)
{
    const char *mode;
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(number >= 5);
    mode = arguments[1];
    address = arguments[2];
    if (strcmp(mode, "owner") == 0) {
        port = OWNER_PORT;
        state = strtoull(arguments[4], NULL, 10) * 2 + 1;
        attack_owner((unsigned)atoi(arguments[3]));
        return report();
    }
    CHECK(number == 6);
    port = (uint16_t)atoi(arguments[3]);
    state = strtoull(arguments[5], NULL, 10) * 2 + 1;
    if (strcmp(mode, "serve") == 0)
        attack_serve((unsigned)atoi(arguments[4]));
    else if (strcmp(mode, "export") == 0)
        attack_export((unsigned)atoi(arguments[4]));
    else if (strcmp(mode, "garbage") == 0)
        garbage((unsigned)atoi(arguments[4]));
    else if (strcmp(mode, "flood") == 0)
        flood((unsigned)atoi(arguments[4]));
    else
        CHECK(!"the mode is known");
    return report();
}
