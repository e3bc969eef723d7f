/*
 * A peer that keeps to nothing, with verbs and no library of ours: each attempt has to be refused by the right error, here, and the owner of the memory looks after
 * each whether anything has changed.
 *
 * hostile owner ADDRESS ROUNDS SEED: takes what `owner` offers and uses it for what it is not for. hostile serve ADDRESS PORT ROUNDS SEED: the same with
 * the memory that `dat serve` grants. hostile export ADDRESS PORT ROUNDS SEED: greetings and messages of remote shared memory that lie, guess or mean nothing, to `dat rsm export`.
 * hostile garbage ADDRESS PORT NUMBER SEED: requests with private data that nobody understands. hostile flood ADDRESS PORT
 * NUMBER SEED: requests that are given up at once, and peers that never say anything.
 *
 * Prints lines `counted|KIND|ATTEMPTS|REFUSED`, and ends with 1 if anything was let through or refused by another error.
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

#define MINE 16384u
#define SECONDS 30
/* The most private data that a request can have beside the header of IP addressing. */
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

/* Gets as far as a queue pair. */
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
    connection->memory = aligned_alloc(PAGE, MINE);
    CHECK(connection->memory != NULL);
    memset(connection->memory, 0xEE, MINE);
    connection->region = ibv_reg_mr(connection->id->qp->pd, connection->memory, MINE,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    CHECK(connection->region != NULL);
    CHECK(rdma_post_recv(connection->id, NULL, connection->memory, PAGE, connection->region) == 0);
}

/* Connects; 0, or the reason of a rejection, which is below 0 if it was not one of the peer. */
static int connects(struct connection *connection, const void *private_data, size_t length)
{
    struct rdma_conn_param asked;
    const struct rdma_cm_event *event;
    memset(&asked, 0, sizeof asked);
    asked.private_data = private_data;
    asked.private_data_len = (uint8_t)length;
    asked.initiator_depth = 1;
    asked.responder_resources = 1;
    asked.retry_count = 3;
    asked.rnr_retry_count = 1;
    if (rdma_connect(connection->id, &asked) != 0) {
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

/* The next completion of the queue. */
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
    struct ibv_sge piece;
    memset(&request, 0, sizeof request);
    piece.addr = (uintptr_t)connection->memory + PAGE;
    piece.length = length;
    piece.lkey = connection->region->lkey;
    request.sg_list = &piece;
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

/* What an attempt may end with. */
#define BIT(status) (1u << (status))
#define DENIED BIT(IBV_WC_REM_ACCESS_ERR)
#define ANY_DENIAL (DENIED | BIT(IBV_WC_REM_INV_REQ_ERR) | BIT(IBV_WC_REM_OP_ERR))
/* Soft-RoCE reports a failure of the queue pair if a receive is too short. It answers nothing if the receiver ends the connection first. */
#define INVALID (BIT(IBV_WC_REM_INV_REQ_ERR) | BIT(IBV_WC_REM_OP_ERR) | BIT(IBV_WC_RETRY_EXC_ERR))
/* Of a key that cannot be invalidated the owner's receive tells, and its connection ends; whoever sent it may have been answered before. */
#define AT_THE_OWNER (ANY_DENIAL | BIT(IBV_WC_SUCCESS))
#define NOT_READY BIT(IBV_WC_RNR_RETRY_EXC_ERR)
/* The receiver may end the connection before its adapter has acknowledged the message. */
#define SENT (BIT(IBV_WC_SUCCESS) | BIT(IBV_WC_WR_FLUSH_ERR) | BIT(IBV_WC_RETRY_EXC_ERR))

/* How often each kind was tried, and refused as it has to be. */
#define MOST_KINDS 64
static struct {
    const char *name;
    unsigned tried, refused;
} kinds[MOST_KINDS];
static unsigned wrong;

static void count(const char *kind, int refused)
{
    int at = 0;
    while (kinds[at].name != NULL && strcmp(kinds[at].name, kind) != 0)
        at++;
    CHECK(at < MOST_KINDS - 1);
    kinds[at].name = kind;
    kinds[at].tried++;
    kinds[at].refused += refused != 0;
    wrong += refused == 0;
    if (!refused)
        printf("%s: not refused as it has to be, after %u that were\n", kind, kinds[at].refused);
}

static void judge(const char *kind, unsigned expected, enum ibv_wc_status status)
{
    int fits = (expected & BIT(status)) != 0;
    if (!fits)
        printf("%s: %s\n", kind, ibv_wc_status_str(status));
    count(kind, fits);
}

/* Sends a message that the receiver ends the connection for. */
static void send_invalid(struct connection *connection, uint32_t length)
{
    enum ibv_wc_status status = post(connection, IBV_WR_SEND, 0, 0, length);
    if ((SENT & BIT(status)) == 0)
        printf("an invalid message of %u bytes: %s\n", length, ibv_wc_status_str(status));
    CHECK((SENT & BIT(status)) != 0);
}

static int report(void)
{
    int at;
    for (at = 0; kinds[at].name != NULL; at++)
        printf("counted|%s|%u|%u\n", kinds[at].name, kinds[at].tried, kinds[at].refused);
    return wrong != 0;
}

/* A connection of which the owner told what it offers. */
static struct offer welcome(struct connection *connection)
{
    struct greeting greeting = {GREETING, HOSTILE};
    struct offer offer;
    struct ibv_wc done;
    int tries, code = -1;
    for (tries = 0; tries < 100 && code != 0; tries++) {
        prepare(connection);
        code = connects(connection, &greeting, sizeof greeting);
        if (code != 0) {
            /* Others take all places now and then. */
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

static const struct place *place_of(const struct offer *offer, size_t where)
{
    return (const struct place *)((const char *)offer + where);
}

#define AT(field) offsetof(struct offer, field)

/* An attempt with what is offered: the key of one place, and an address relative to the begin of one. */
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
    {"longer than all of it", IBV_WR_RDMA_WRITE, AT(writable), AT(writable), 0, 2 * PAGE, DENIED},
    {"longer than all of it", IBV_WR_RDMA_READ, AT(readable), AT(readable), 0, 2 * PAGE, DENIED},
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
    {"invalidate a window", IBV_WR_SEND_WITH_INV, AT(writable), AT(writable), 0, 8, AT_THE_OWNER},
    {"invalidate another zone's window", IBV_WR_SEND_WITH_INV, AT(other_window), AT(other_window), 0, 8, AT_THE_OWNER},
    {"invalidate another zone's region", IBV_WR_SEND_WITH_INV, AT(other), AT(other), 0, 8, AT_THE_OWNER},
    {"a message longer than its place", IBV_WR_SEND, AT(writable), AT(writable), 0, PAGE, INVALID},
};

/* As welcome, at a time when the owner has a window of the other zone if the attempt is about one. */
static struct offer welcome_for(struct connection *connection, const struct attempt *attempt)
{
    int tries;
    for (tries = 0; tries < 100; tries++) {
        struct offer offer = welcome(connection);
        if (attempt->key != AT(other_window) || offer.other_window.length != 0)
            return offer;
        close_connection(connection);
        usleep(50000);
    }
    CHECK(!"an honest peer with a window");
    exit(1);
}

/* What a peer may do: without it, refusals would prove nothing. */
static void allowed(void)
{
    struct connection connection;
    struct offer offer = welcome(&connection);
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

/* Nothing of the peer's memory has come. */
static int nothing_read(const struct connection *connection)
{
    unsigned at;
    for (at = 0; at < 2 * PAGE; at++)
        if (connection->memory[PAGE + at] != 0xEE)
            return 0;
    return 1;
}

static void one(const char *kind, enum ibv_wr_opcode opcode, uint32_t key, uint64_t remote, uint32_t length, unsigned expected,
                struct connection *connection)
{
    judge(kind, expected, post(connection, opcode, remote, key, length));
    if (!nothing_read(connection)) {
        printf("%s: memory was read\n", kind);
        wrong++;
    }
    close_connection(connection);
}

/* A key that is none of those that are in use. */
static uint32_t guessed(const struct offer *offer)
{
    const struct place *known = (const struct place *)offer;
    size_t number = sizeof *offer / sizeof *known, at;
    for (;;) {
        /* Half of the guesses are near to one that is known. */
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
        allowed();
        for (at = 0; at < sizeof attempts / sizeof *attempts; at++) {
            const struct attempt *attempt = &attempts[at];
            const struct place *key, *target;
            offer = welcome_for(&connection, attempt);
            key = place_of(&offer, attempt->key);
            target = place_of(&offer, attempt->address);
            one(attempt->kind, attempt->opcode, key->context, target->address + (uint64_t)attempt->from, attempt->length,
                attempt->expected, &connection);
            before = offer;
        }
        offer = welcome(&connection);
        one("replay: of a connection that has ended", IBV_WR_RDMA_WRITE, before.writable.context, before.writable.address, 8, DENIED,
            &connection);
        offer = welcome(&connection);
        one("replay: of a connection that has ended", IBV_WR_RDMA_READ, before.readable.context, before.readable.address, 8, DENIED,
            &connection);
        for (at = 0; at < 8; at++) {
            offer = welcome(&connection);
            one("a guessed key", at % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, guessed(&offer), offer.writable.address, 8, DENIED,
                &connection);
        }
        /* There is one receive. */
        welcome(&connection);
        CHECK(post(&connection, IBV_WR_SEND, 0, 0, 8) == IBV_WC_SUCCESS);
        one("more messages than receives", IBV_WR_SEND, 0, 0, 8, NOT_READY, &connection);
    }
}

/* The first byte of the message that says no, and requests of `dat serve`: see dat-cli/src/remote/protocol.rs. */
#define REFUSED 21
static size_t request_to_serve(unsigned char *request, uint16_t kind)
{
    static const unsigned char words[24] = {'D', 'A', 'T', 'c', 2, 0, 0, 0, 2, 0, 0xE8, 3};
    memset(request, 0, MOST_PRIVATE);
    memcpy(request, words, sizeof words);
    request[6] = (unsigned char)kind;
    /* How much of it counts: see backend-verbs/src/private_data.rs. */
    request[MOST_PRIVATE - 1] = 24 + 1;
    return MOST_PRIVATE;
}

/* A connection to `dat serve`, which grants two slots of GRANTED bytes to write (2) or to read (3). */
static struct place granted(struct connection *connection, uint16_t kind)
{
    unsigned char request[64];
    struct place place;
    size_t length = request_to_serve(request, kind);
    int tries, code = -1;
    for (tries = 0; tries < 100 && code != 0; tries++) {
        prepare(connection);
        code = connects(connection, request, length);
        if (code != 0) {
            close_connection(connection);
            usleep(100000);
        }
    }
    CHECK(code == 0);
    CHECK(connection->answered >= 26);
    memcpy(&place.context, connection->answer + 6, 4);
    memcpy(&place.address, connection->answer + 10, 8);
    memcpy(&place.length, connection->answer + 18, 4);
    CHECK(place.length == 2 * GRANTED);
    return place;
}

static void attack_serve(unsigned rounds)
{
    struct connection connection, victim;
    struct place place, theirs, before;

    unsigned round, at, length;
    struct ibv_wc done;
    for (round = 0; round < rounds; round++) {
        place = granted(&connection, 2);
        CHECK(post(&connection, IBV_WR_RDMA_WRITE, place.address, place.context, place.length) == IBV_WC_SUCCESS);
        /* A device sends no reads where the peer takes none, so that there is no attempt to read what may be written. */
        close_connection(&connection);
        place = granted(&connection, 3);
        one("write what may be read", IBV_WR_RDMA_WRITE, place.context, place.address, 8, DENIED, &connection);
        place = granted(&connection, 2);
        one("beyond the end", IBV_WR_RDMA_WRITE, place.context, place.address + place.length, 1, DENIED, &connection);
        place = granted(&connection, 2);
        one("across the end", IBV_WR_RDMA_WRITE, place.context, place.address + place.length - 4, 8, DENIED, &connection);
        place = granted(&connection, 3);
        one("before the begin", IBV_WR_RDMA_READ, place.context, place.address - 8, 8, DENIED, &connection);
        place = granted(&connection, 2);
        one("far away", IBV_WR_RDMA_WRITE, place.context, random_number(), 8, DENIED, &connection);
        before = place;
        place = granted(&connection, 2);
        if (before.context != place.context)
            one("replay: of a connection that has ended", IBV_WR_RDMA_WRITE, before.context, before.address, 8, DENIED, &connection);
        else
            close_connection(&connection);
        for (at = 2; at <= 3; at++) {
            theirs = granted(&victim, (uint16_t)at);
            granted(&connection, (uint16_t)at);
            one("another client's memory", at == 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, theirs.context, theirs.address, 8, DENIED,
                &connection);
            /* The victim goes on. */
            CHECK(post(&victim, at == 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, theirs.address, theirs.context, 8) == IBV_WC_SUCCESS);
            CHECK(rdma_disconnect(victim.id) == 0);
            close_connection(&victim);
        }
        for (at = 0; at < 4; at++) {
            place = granted(&connection, 2);
            one("a guessed key", IBV_WR_RDMA_WRITE, place.context ^ (1u << random_number() % 32), place.address, 8, DENIED, &connection);
        }
        place = granted(&connection, 2);
        one("a message longer than its place", IBV_WR_SEND, 0, 0, 2 * PAGE, INVALID, &connection);
        /* Messages that mean nothing are answered, and the connection ends. */
        granted(&connection, 2);
        length = random_number() % 257;
        for (at = 0; at < length; at++)
            connection.memory[PAGE + at] = (unsigned char)random_number();
        connection.memory[PAGE] |= 0x80;
        send_invalid(&connection, length);
        done = completion(connection.id->recv_cq);
        /* The connection may end before the answer is there. */
        count("a message that means nothing", done.status == IBV_WC_WR_FLUSH_ERR || (done.status == IBV_WC_SUCCESS && connection.memory[0] == REFUSED));
        close_connection(&connection);
    }
}

/* Greetings and messages of remote shared memory: see dat-rsm/src/link/wire.rs. */
#define LETTER 64
#define GREETING_BYTES 32
#define LETTERS 8
enum letter { CREDIT = 1, CONNECT, ACCEPT, REFUSE, DISCONNECT, REVOKE, REBIND, ACKNOWLEDGE, SIGNAL, SIGNAL_IMPORTERS };
/* The segment that is exported without a number of its own, and what may be done with it at most. */
#define SEGMENT 0x600000u
#define READ_AND_WRITE 0600u
static uint64_t life;

static void little(unsigned char *to, uint64_t value, unsigned bytes)
{
    while (bytes-- > 0) {
        *to++ = (unsigned char)value;
        value >>= 8;
    }
}

static uint64_t word_at(const unsigned char *from)
{
    uint64_t word = 0;
    unsigned at;
    for (at = 8; at-- > 0;)
        word = word << 8 | from[at];
    return word;
}

/* A greeting in order, as private data. */
static void greet(unsigned char *data)
{
    static const unsigned char magic[4] = {'R', 'S', 'M', 1};
    struct in_addr own;
    CHECK(inet_pton(AF_INET, address, &own) == 1);
    memset(data, 0, MOST_PRIVATE);
    memcpy(data, magic, sizeof magic);
    /* Nodes have the numbers of their addresses, and this one is on the exporter's host. */
    little(data + 4, ntohl(own.s_addr), 4);
    little(data + 8, life, 8);
    little(data + 16, 0x1000, 8);
    little(data + 24, 1, 4);
    little(data + 28, LETTERS, 2);
    data[30] = 1;
    /* How much of it counts: see backend-verbs/src/private_data.rs. */
    data[MOST_PRIVATE - 1] = GREETING_BYTES + 1;
}

/* A message in order, without what it says, to be sent. */
static unsigned char *letter(struct connection *connection, enum letter kind)
{
    unsigned char *data = connection->memory + PAGE;
    static const unsigned char magic[4] = {'R', 'S', 'M', 1};
    memset(data, 0, LETTER);
    memcpy(data, magic, sizeof magic);
    data[4] = (unsigned char)kind;
    /* What the exporter may say in return. */
    little(data + 6, 1, 2);
    little(data + 8, life, 8);
    return data;
}

static void send_letter(struct connection *connection)
{
    CHECK(post(connection, IBV_WR_SEND, 0, 0, LETTER) == IBV_WC_SUCCESS);
}

/* A connection to the exporter, which takes its greeting for one of an importer. */
static void meet(struct connection *connection)
{
    unsigned char data[MOST_PRIVATE];
    unsigned tries, at;
    int code = -1;
    for (tries = 0; tries < 100 && code != 0; tries++) {
        life = (uint64_t)random_number() << 32 | random_number();
        greet(data);
        prepare(connection);
        for (at = 0; at < LETTERS - 1; at++) {
            unsigned char *place = connection->memory + 3 * PAGE + at * LETTER;
            CHECK(rdma_post_recv(connection->id, place, place, LETTER, connection->region) == 0);
        }
        code = connects(connection, data, sizeof data);
        if (code != 0) {
            /* A node has its share of connections, and those that have just ended count. */
            CHECK(code == 28);
            close_connection(connection);
            usleep(100000);
        }
    }
    CHECK(code == 0);
    CHECK(connection->answered >= GREETING_BYTES && memcmp(connection->answer, "RSM\1", 4) == 0);
}

/* The next message that says anything; null if the connection ended before. */
static const unsigned char *hear(struct connection *connection)
{
    for (;;) {
        struct ibv_wc done = completion(connection->id->recv_cq);
        const unsigned char *said = done.wr_id == 0 ? connection->memory : (const unsigned char *)(uintptr_t)done.wr_id;
        if (done.status != IBV_WC_SUCCESS)
            return NULL;
        CHECK(done.byte_len == LETTER && memcmp(said, "RSM\1", 4) == 0);
        if (said[4] != CREDIT)
            return said;
    }
}

/* Whether the exporter ends the connection. */
static int ends(struct connection *connection)
{
    struct pollfd look = {connection->id->channel->fd, POLLIN, 0};
    struct rdma_cm_event *event;
    int is_end;
    if (poll(&look, 1, SECONDS * 1000) != 1) {
        printf("nothing is said of the connection\n");
        return 0;
    }
    CHECK(rdma_get_cm_event(connection->id->channel, &event) == 0);
    /* A connection that is ended before the exporter has heard that it stands is rejected. */
    is_end = event->event == RDMA_CM_EVENT_DISCONNECTED || event->event == RDMA_CM_EVENT_REJECTED;
    if (event->event != RDMA_CM_EVENT_DISCONNECTED)
        printf("the connection ends with %s\n", rdma_event_str(event->event));
    CHECK(rdma_ack_cm_event(event) == 0);
    return is_end;
}

/* Asks to be connected to a segment; what the answer is. */
static const unsigned char *asks(struct connection *connection, uint64_t word, uint64_t resume, uint32_t segment, uint32_t permission)
{
    unsigned char *data = letter(connection, CONNECT);
    const unsigned char *answer;
    little(data + 16, word, 8);
    little(data + 24, resume, 8);
    little(data + 32, segment, 4);
    little(data + 36, permission, 4);
    send_letter(connection);
    answer = hear(connection);
    return answer != NULL && word_at(answer + 16) == word ? answer : NULL;
}

static int is_refusal(const unsigned char *answer)
{
    return answer != NULL && answer[4] == REFUSE;
}

/* A connection to the segment; the exporter's word for it, and where it is. */
static uint64_t accepted(struct connection *connection, uint32_t permission, struct place *place)
{
    const unsigned char *answer;
    meet(connection);
    answer = asks(connection, 5, 0, SEGMENT, permission);
    CHECK(answer != NULL && answer[4] == ACCEPT);
    place->length = (uint32_t)word_at(answer + 32);
    place->address = word_at(answer + 40);
    place->context = (uint32_t)word_at(answer + 56);
    /* Whether anything is read into it is looked at later. */
    memset(connection->memory + PAGE, 0xEE, LETTER);
    return word_at(answer + 24);
}

/* What is no message: the connection that it came by ends. */
static void noise(unsigned kind, struct connection *connection)
{
    unsigned char *data;
    unsigned at, length = LETTER;
    const char *name = "a message that means nothing";
    meet(connection);
    data = letter(connection, CREDIT);
    switch (kind) {
    case 0:
        name = "a message of chance";
        for (at = 0; at < LETTER; at++)
            data[at] = (unsigned char)random_number();
        data[0] |= 0x80;
        break;
    case 1:
        name = "a message of chance, with its head in order";
        for (at = 16; at < LETTER; at++)
            data[at] = (unsigned char)random_number();
        /* What says nothing says it with zeros. */
        data[LETTER - 1] |= 1;
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
        name = "a message of another life";
        data[8] ^= 1;
        break;
    case 6:
    case 7:
        name = "a message shorter than any, where one in order was before";
        /* All places have had one. */
        for (at = 0; at < 36; at++) {
            (void)letter(connection, CREDIT);
            send_letter(connection);
            /* It has taken them all in when it answers. */
            if (at % 6 == 5)
                CHECK(asks(connection, at, 0, SEGMENT + 1, READ_AND_WRITE) != NULL);
        }
        length = kind == 6 ? 0 : 1 + random_number() % (LETTER - 1);
        break;
    default:
        name = "a message longer than any";
        length = LETTER + 1 + random_number() % 64;
        (void)post(connection, IBV_WR_SEND, 0, 0, length);
        count(name, ends(connection));
        close_connection(connection);
        return;
    }
    send_invalid(connection, length);
    count(name, ends(connection));
    close_connection(connection);
}

/* Words of others, and answers to what nobody asked: nothing comes of them, and the exporter goes on. */
static void lie(struct connection *connection)
{
    static const enum letter lies[] = {ACCEPT, REFUSE, DISCONNECT, REVOKE, REBIND, ACKNOWLEDGE, SIGNAL, SIGNAL_IMPORTERS};
    unsigned kind, at;
    struct place place;
    uint64_t own = accepted(connection, READ_AND_WRITE, &place);
    for (kind = 0; kind < sizeof lies / sizeof *lies; kind++) {
        unsigned char *data = letter(connection, lies[kind]);
        const unsigned words = lies[kind] == ACCEPT ? 5 : lies[kind] == REBIND ? 3 : lies[kind] == REVOKE ? 2 : 1;
        for (at = 0; at < words; at++)
            little(data + 16 + 8 * at, own + random_number() % 40 + 1, 8);
        if (lies[kind] == REFUSE)
            little(data + 24, 1, 4);
        if (lies[kind] == ACCEPT || lies[kind] == REBIND)
            little(data + 16 + 8 * words, random_number(), 4);
        send_letter(connection);
        /* What is taken back or changed is acknowledged, whoever's it is, and what was granted unasked is given back. */
        if (lies[kind] == ACCEPT || lies[kind] == REVOKE || lies[kind] == REBIND) {
            const unsigned char *answer = hear(connection);
            CHECK(answer != NULL && answer[4] == (lies[kind] == ACCEPT ? DISCONNECT : ACKNOWLEDGE));
        }
        count("a word of somebody else", is_refusal(asks(connection, 6, 0, SEGMENT + 1, READ_AND_WRITE)));
        if (kind % 3 == 2) {
            /* Places for answers are used up. */
            close_connection(connection);
            own = accepted(connection, READ_AND_WRITE, &place);
        }
    }
    close_connection(connection);
}

static void attack_export(unsigned rounds)
{
    struct connection connection;
    struct place place;
    unsigned char data[MOST_PRIVATE];
    unsigned round, at;
    for (round = 0; round < rounds; round++) {
        for (at = 0; at < 9; at++) {
            unsigned length = sizeof data;
            const char *name = "a greeting that lies";
            life = random_number();
            greet(data);
            switch (at) {
            case 0: data[3] = 2; break;
            case 1: little(data + 4, random_number() | 0x80000000u, 4); break;
            case 2: little(data + 4, 0, 4); break;
            case 3: little(data + 24, 0, 4); break;
            case 4: little(data + 28, 0, 2); break;
            case 5: data[30] = (unsigned char)(3 + random_number() % 253); break;
            case 6: data[31] = 1; break;
            case 7: length = random_number() % 29; break;
            default:
                name = "a greeting of chance";
                for (length = 4; length < sizeof data; length++)
                    data[length] = (unsigned char)random_number();
            }
            prepare(&connection);
            count(name, connects(&connection, data, length) == 28);
            close_connection(&connection);
        }
        for (at = 0; at < 9; at++)
            noise(at, &connection);
        lie(&connection);
        meet(&connection);
        count("a segment that is not there", is_refusal(asks(&connection, 1, 0, random_number() | 0x80000000u, READ_AND_WRITE)));
        count("rights that there are none of", is_refusal(asks(&connection, 2, 0, SEGMENT, 0700)));
        count("rights that there are none of", is_refusal(asks(&connection, 3, 0, SEGMENT, random_number() | 0x1000)));
        count("a connection that was never granted", is_refusal(asks(&connection, 4, 1 + random_number() % 4, SEGMENT, READ_AND_WRITE)));
        close_connection(&connection);
        accepted(&connection, 0400, &place);
        one("write what may be read", IBV_WR_RDMA_WRITE, place.context, place.address, 8, DENIED, &connection);
        accepted(&connection, 0200, &place);
        one("read what may be written", IBV_WR_RDMA_READ, place.context, place.address, 8, DENIED, &connection);
        accepted(&connection, READ_AND_WRITE, &place);
        one("across the end", IBV_WR_RDMA_WRITE, place.context, place.address + place.length - 4, 8, DENIED, &connection);
        accepted(&connection, READ_AND_WRITE, &place);
        one("before the begin", IBV_WR_RDMA_READ, place.context, place.address - 8, 8, DENIED, &connection);
        accepted(&connection, READ_AND_WRITE, &place);
        one("a guessed key", IBV_WR_RDMA_WRITE, place.context ^ (1u << random_number() % 32), place.address, 8, DENIED, &connection);
    }
}

/* Requests that nobody can mean; none may be accepted, and all are answered by the consumer that listens. */
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
            /* Nearly right: some bytes are missing. */
            request_to_serve(data, 2);
            length = random_number() % 24;
        }
        prepare(&connection);
        code = connects(&connection, data, length);
        if (code != 28)
            printf("garbage of %zu bytes: %d\n", length, code);
        count(length == MOST_PRIVATE ? "as much private data as there can be" : "private data that means nothing", code == 28);
        close_connection(&connection);
        prepare(&connection);
        code = connects(&connection, data, MOST_PRIVATE + 1 + random_number() % 190);
        /* It never leaves this host: its kernel has no room for it in a request. */
        if (code != -EINVAL)
            printf("oversized: %d\n", code);
        count("more private data than there can be: refused by the sender's own kernel", code == -EINVAL);
        close_connection(&connection);
    }
}

/* Requests that are given up, before an answer can come or just after it; what is left of them whoever looks for objects finds. */
static void flood(unsigned number)
{
    struct greeting greeting = {GREETING, SILENT};
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct connection connection;
    unsigned char request[64];
    unsigned round;
    CHECK(channel != NULL);
    for (round = 0; round < number; round++) {
        struct rdma_conn_param asked;
        size_t length = port == OWNER_PORT ? sizeof greeting : request_to_serve(request, 2);
        memset(&asked, 0, sizeof asked);
        asked.private_data = port == OWNER_PORT ? (const void *)&greeting : request;
        asked.private_data_len = (uint8_t)length;
        asked.initiator_depth = asked.responder_resources = 1;
        prepare(&connection);
        /* From here on nobody waits for the outcome. */
        CHECK(rdma_migrate_id(connection.id, channel) == 0);
        CHECK(rdma_connect(connection.id, &asked) == 0);
        if (random_number() % 2)
            usleep(random_number() % 20000);
        close_connection(&connection);
    }
    /* Nobody waited to hear whether they are refused. */
    printf("counted|requests that are given up, which have no outcome|%u|0\n", number);
    rdma_destroy_event_channel(channel);
}

int main(int number, char **arguments)
{
    const char *what;
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(number >= 5);
    what = arguments[1];
    address = arguments[2];
    if (strcmp(what, "owner") == 0) {
        port = OWNER_PORT;
        state = strtoull(arguments[4], NULL, 10) * 2 + 1;
        attack_owner((unsigned)atoi(arguments[3]));
        return report();
    }
    CHECK(number == 6);
    port = (uint16_t)atoi(arguments[3]);
    state = strtoull(arguments[5], NULL, 10) * 2 + 1;
    if (strcmp(what, "serve") == 0)
        attack_serve((unsigned)atoi(arguments[4]));
    else if (strcmp(what, "export") == 0)
        attack_export((unsigned)atoi(arguments[4]));
    else if (strcmp(what, "garbage") == 0)
        garbage((unsigned)atoi(arguments[4]));
    else if (strcmp(what, "flood") == 0)
        flood((unsigned)atoi(arguments[4]));
    else
        CHECK(!"a word that is known");
    return report();
}
