/*
 * The peer of dat-host/tests/private_data.rs on librdmacm; both have the same patterns and the same order of attempts.
 *
 * rdmacm_private_data serve ADDRESS PORT ATTEMPTS: accepts four of five requests and rejects the fifth.
 * rdmacm_private_data connect ADDRESS PORT ATTEMPTS: makes the requests.
 *
 * Every request, acceptance and rejection of this program has as much private data as librdmacm carries. Those of the peer have at most as much as
 * DAT allows, followed by zeros and their length plus one. All bytes are checked. Each connection exchanges a message and its answer, and is ended by
 * its client and its server in turn. Exits with 1 at the first difference.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUEST_BYTES 56
#define ACCEPTANCE_BYTES 196
#define REJECTION_BYTES 148
/* Bytes that the peer sends with an answer. */
#define ANSWER_BYTES 64
#define MESSAGE_BYTES 64
/* The whole program ends after this time, so that a peer that is silent is a failure. */
#define SECONDS 300

#define CHECK(condition)                                                                                                \
    do {                                                                                                                \
        if (!(condition)) {                                                                                             \
            fprintf(stderr, "attempt %u, %s:%d: %s does not hold (%s)\n", attempt, __FILE__, __LINE__, #condition,      \
                    strerror(errno));                                                                                   \
            exit(1);                                                                                                    \
        }                                                                                                               \
    } while (0)

enum outcome { CLIENT_ENDS, SERVER_ENDS, REJECTED };

/* The attempt under way, which is also in its pattern. */
static unsigned attempt;
static unsigned accepted, rejected;

static enum outcome outcome(void)
{
    if (attempt % 5 == 4)
        return REJECTED;
    return attempt % 2 == 0 ? CLIENT_ENDS : SERVER_ENDS;
}

/* Fills bytes with the pattern of a kind: 'q' request, 'a' acceptance, 'j' rejection, 'm' message, 'r' answer. */
static void fill(unsigned char *bytes, size_t length, char kind)
{
    for (size_t index = 0; index < length; index++)
        bytes[index] = (unsigned char)((unsigned)kind + 31 * attempt + 7 * index);
}

static void check(const void *bytes, size_t length, char kind)
{
    unsigned char expected[256];
    fill(expected, length, kind);
    CHECK(bytes != NULL);
    CHECK(memcmp(bytes, expected, length) == 0);
}

/* Checks private data of which the peer has chosen the first bytes, of all that the message has room for. */
static void check_private_data(const struct rdma_cm_id *id, size_t chosen, size_t room, char kind)
{
    const unsigned char *data;
    CHECK(id->event != NULL);
    CHECK(id->event->param.conn.private_data_len == room);
    data = id->event->param.conn.private_data;
    check(data, chosen, kind);
    for (size_t index = chosen; index < room; index++)
        CHECK(data[index] == (index == room - 1 ? chosen + 1 : 0));
}

static struct rdma_conn_param parameters(const unsigned char *data, uint8_t length)
{
    struct rdma_conn_param parameters;
    memset(&parameters, 0, sizeof parameters);
    parameters.private_data = data;
    parameters.private_data_len = length;
    parameters.responder_resources = 1;
    parameters.initiator_depth = 1;
    parameters.retry_count = 7;
    parameters.rnr_retry_count = 7;
    return parameters;
}

/* Creates a queue pair with a posted receive into the second half of the memory. */
static struct ibv_mr *prepare(struct rdma_cm_id *id, unsigned char *memory)
{
    struct ibv_qp_init_attr attributes;
    struct ibv_mr *region;
    memset(&attributes, 0, sizeof attributes);
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 1;
    attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 2;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    CHECK(rdma_create_qp(id, NULL, &attributes) == 0);
    region = rdma_reg_msgs(id, memory, 2 * MESSAGE_BYTES);
    CHECK(region != NULL);
    CHECK(rdma_post_recv(id, NULL, memory + MESSAGE_BYTES, MESSAGE_BYTES, region) == 0);
    return region;
}

static void send_message(struct rdma_cm_id *id, unsigned char *memory, struct ibv_mr *region, char kind)
{
    struct ibv_wc completion;
    fill(memory, MESSAGE_BYTES, kind);
    CHECK(rdma_post_send(id, NULL, memory, MESSAGE_BYTES, region, 0) == 0);
    CHECK(rdma_get_send_comp(id, &completion) == 1);
    CHECK(completion.status == IBV_WC_SUCCESS);
}

static void receive_message(struct rdma_cm_id *id, const unsigned char *memory, char kind)
{
    struct ibv_wc completion;
    CHECK(rdma_get_recv_comp(id, &completion) == 1);
    CHECK(completion.status == IBV_WC_SUCCESS);
    CHECK(completion.byte_len == MESSAGE_BYTES);
    check(memory + MESSAGE_BYTES, MESSAGE_BYTES, kind);
}

/* Ends the connection, or waits until the peer ends it. */
static void end(struct rdma_cm_id *id, int is_own)
{
    if (is_own) {
        CHECK(rdma_disconnect(id) == 0);
    } else {
        /* The destruction of the identifier answers; a call of rdma_disconnect would wait until the kernel frees the queue pair's number. */
        struct rdma_cm_event *event;
        CHECK(rdma_get_cm_event(id->channel, &event) == 0);
        CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED);
        CHECK(rdma_ack_cm_event(event) == 0);
    }
    accepted++;
}

static void destroy(struct rdma_cm_id *id, struct ibv_mr *region)
{
    CHECK(rdma_dereg_mr(region) == 0);
    rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0);
}

static void serve(struct rdma_cm_id *listener)
{
    unsigned char memory[2 * MESSAGE_BYTES], data[ACCEPTANCE_BYTES];
    struct rdma_conn_param answer;
    struct rdma_cm_id *id;
    struct ibv_mr *region;
    CHECK(rdma_get_request(listener, &id) == 0);
    check_private_data(id, REQUEST_BYTES, REQUEST_BYTES, 'q');
    if (outcome() == REJECTED) {
        fill(data, REJECTION_BYTES, 'j');
        CHECK(rdma_reject(id, data, REJECTION_BYTES) == 0);
        CHECK(rdma_destroy_id(id) == 0);
        rejected++;
        return;
    }
    region = prepare(id, memory);
    fill(data, sizeof data, 'a');
    answer = parameters(data, sizeof data);
    CHECK(rdma_accept(id, &answer) == 0);
    receive_message(id, memory, 'm');
    send_message(id, memory, region, 'r');
    end(id, outcome() == SERVER_ENDS);
    destroy(id, region);
}

static void connect_to(struct sockaddr *peer)
{
    unsigned char memory[2 * MESSAGE_BYTES], data[REQUEST_BYTES];
    struct rdma_conn_param request;
    struct rdma_cm_id *id;
    struct ibv_mr *region;
    /* Without an event channel, each call waits for its outcome. */
    CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(id, NULL, peer, 10000) == 0);
    CHECK(rdma_resolve_route(id, 10000) == 0);
    region = prepare(id, memory);
    fill(data, sizeof data, 'q');
    request = parameters(data, sizeof data);
    if (outcome() == REJECTED) {
        CHECK(rdma_connect(id, &request) != 0 && errno == ECONNREFUSED);
        CHECK(id->event != NULL && id->event->event == RDMA_CM_EVENT_REJECTED);
        /* The reason of a consumer. */
        CHECK(id->event->status == 28);
        check_private_data(id, ANSWER_BYTES, REJECTION_BYTES, 'j');
        rejected++;
    } else {
        CHECK(rdma_connect(id, &request) == 0);
        check_private_data(id, ANSWER_BYTES, ACCEPTANCE_BYTES, 'a');
        send_message(id, memory, region, 'm');
        receive_message(id, memory, 'r');
        end(id, outcome() == CLIENT_ENDS);
    }
    destroy(id, region);
}

int main(int count, char **arguments)
{
    struct addrinfo *found, hints;
    struct rdma_cm_id *listener = NULL;
    unsigned attempts;
    int serves;
    if (count != 5 || (strcmp(arguments[1], "serve") != 0 && strcmp(arguments[1], "connect") != 0)) {
        fprintf(stderr, "usage: %s serve|connect ADDRESS PORT ATTEMPTS\n", arguments[0]);
        return 2;
    }
    alarm(SECONDS);
    serves = strcmp(arguments[1], "serve") == 0;
    attempts = (unsigned)atoi(arguments[4]);
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    CHECK(getaddrinfo(arguments[2], arguments[3], &hints, &found) == 0);
    if (serves) {
        CHECK(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) == 0);
        CHECK(rdma_bind_addr(listener, found->ai_addr) == 0);
        CHECK(rdma_listen(listener, 8) == 0);
    }
    for (attempt = 0; attempt < attempts; attempt++) {
        if (serves)
            serve(listener);
        else
            connect_to(found->ai_addr);
    }
    if (serves)
        CHECK(rdma_destroy_id(listener) == 0);
    freeaddrinfo(found);
    printf("%u connections, %u rejections\n", accepted, rejected);
    return 0;
}
