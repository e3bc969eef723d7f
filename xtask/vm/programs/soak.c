/*
 * Uses an adapter for a long time from several threads, with all operations at once, and checks repeatedly that its use of memory and objects does not grow.
 *
 * soak ADAPTER SECONDS SAMPLES THREADS ENDPOINTS SEED: each thread has ENDPOINTS endpoints, connected to as many of a second adapter of the same name. At random, each of them
 * writes, reads back, sends and compares data; binds a window, writes through it and frees it; or ends the connection from either side, abruptly or gracefully, and connects again
 * with the same endpoints or new ones. Meanwhile regions, dispatchers, notification objects, shared queues and zones are created and freed.
 *
 * SAMPLES times all threads come to rest. Then the program prints a line `sample SECONDS KIBIBYTES USED DESCRIPTORS ROOM`: the memory of the process and the part that malloc has
 * allocated, in KiB, the number of open files, and for each kind the number of objects that can still be created. To find that number, it creates objects until one is refused, and
 * frees them. Then it waits for a line on its input, so that the caller can look at the process. `soak ADAPTER SECONDS SAMPLES THREADS ENDPOINTS SEED device` does not
 * count the objects of a device of verbs, which would take long; those of dat0 are in its memory.
 *
 * The numbers of files and objects must be the same in each sample. The allocated memory of the last third of the samples may exceed that of the third before by 16 KiB, and on a
 * device by 144 KiB, for tables that double. The memory of the process may grow by one MiB, because freed memory lies between allocated
 * memory. For that, malloc must keep no memory for each thread:
 * GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1
 *
 * At the end it prints the numbers of completed operations, of windows that were written through and of connections, and the highest allocated memory of these two thirds.
 *
 * DTO-01, EPD-02, EPR-01, EPF-03, RMB-01
 */
#define EDITION_1_2
#include "../../../dat-ffi/dat-provider/tests/programs/check.h"
#include "common.h"

#include <dirent.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <time.h>

#define PORT 4800
#define MOST_THREADS 64
#define MOST_ENDPOINTS 256
/* The most bytes of a transfer, and the bytes of a message. */
#define MOST_BYTES 2048u
#define MESSAGE_BYTES 48u
/* The memory of a connection: the written bytes, the bytes read back, and the message. */
#define SLOT (2 * MOST_BYTES + MESSAGE_BYTES)
/* The memory of regions that are created and freed. */
#define CHURNED_BYTES (16 * 4096u)
#define ROOM_MOST 65536
/* Microseconds between two polls, because the load should last long, not be fast. */
#define PAUSE 1000
#define KINDS 7
#define MOST_SAMPLES 1000
/* The number of frees before a handle is used again. */
#define QUARANTINE (1 << 16)
/* The tolerated growth of allocated memory, in KiB; SLACK includes the free memory between. */
#define USED_SLACK 16
#define DEVICE_SLACK 144
#define SLACK 1024

enum activity { RESTS, CONNECTS, TRANSFERS, BINDS, WRITES_THROUGH, ENDS };

struct pair {
    DAT_EP_HANDLE near, far;
    enum activity activity;
    /* The completions and events to wait for before it rests. */
    unsigned open;
    /* Set if each side has reported the start or the end of the connection. */
    int near_reported, far_reported;
    unsigned length;
    unsigned long long number;
    DAT_RMR_HANDLE window;
    DAT_RMR_CONTEXT context;
};

struct worker {
    pthread_t thread;
    unsigned index;
    unsigned long long state, operations, windows, connections;
    DAT_EVD_HANDLE near_transfers, near_connections, far_transfers, far_connections, arrivals;
    DAT_PSP_HANDLE listener;
    unsigned char *near_memory, *far_memory, *churned_memory;
    DAT_LMR_CONTEXT near_local, far_local;
    DAT_RMR_CONTEXT far_remote;
    struct pair pairs[MOST_ENDPOINTS];
};

static DAT_IA_HANDLE near_ia, far_ia;
static DAT_EVD_HANDLE near_async, far_async;
static DAT_PZ_HANDLE near_zone, far_zone;
static DAT_SOCK_ADDR *far_address;
static unsigned threads, endpoints;
static struct worker workers[MOST_THREADS];
static volatile int pausing;
static pthread_barrier_t all_rest;

static unsigned random_number(struct worker *worker)
{
    return next_random(&worker->state);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void check_intact(const unsigned char *bytes, unsigned length, unsigned long long number, const char *subject)
{
    if (!is_intact(bytes, length, number, subject))
        exit(1);
}

static unsigned char *near_slot(struct worker *worker, const struct pair *pair)
{
    return worker->near_memory + (size_t)(pair - worker->pairs) * SLOT;
}

static unsigned char *far_slot(struct worker *worker, const struct pair *pair)
{
    return worker->far_memory + (size_t)(pair - worker->pairs) * SLOT;
}

static DAT_DTO_COOKIE cookie_of(struct worker *worker, const struct pair *pair)
{
    return cookie((DAT_UINT64)(pair - worker->pairs));
}

static void make_endpoints(struct worker *worker, struct pair *pair)
{
    OK(dat_ep_create(near_ia, near_zone, worker->near_transfers, worker->near_transfers, worker->near_connections, NULL, &pair->near));
    OK(dat_ep_create(far_ia, far_zone, worker->far_transfers, worker->far_transfers, worker->far_connections, NULL, &pair->far));
}

/* Posts the receive of the next message. */
static void receive(struct worker *worker, struct pair *pair)
{
    DAT_LMR_TRIPLET room = segment_of(worker->far_local, far_slot(worker, pair) + 2 * MOST_BYTES, MESSAGE_BYTES);
    OK(dat_ep_post_recv(pair->far, 1, &room, cookie_of(worker, pair), DAT_COMPLETION_DEFAULT_FLAG));
}

static void connect_pair(struct worker *worker, struct pair *pair)
{
    DAT_UINT32 index = (DAT_UINT32)(pair - worker->pairs);
    receive(worker, pair);
    pair->activity = CONNECTS;
    pair->near_reported = pair->far_reported = 0;
    OK(dat_ep_connect(pair->near, far_address, PORT + worker->index, 60 * SECOND, sizeof index, &index, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
}

static void transfer(struct worker *worker, struct pair *pair)
{
    unsigned char *out = near_slot(worker, pair), *back = out + MOST_BYTES, *message = back + MOST_BYTES;
    DAT_LMR_TRIPLET segment;
    DAT_RMR_TRIPLET target;
    pair->length = random_number(worker) % MOST_BYTES + 1;
    pair->number = random_number(worker);
    pair->activity = TRANSFERS;
    pair->open = 4;
    fill(out, pair->length, pair->number);
    fill(message, MESSAGE_BYTES, pair->number);
    target = remote_segment(worker->far_remote, (DAT_VADDR)(uintptr_t)far_slot(worker, pair), pair->length);
    segment = segment_of(worker->near_local, out, pair->length);
    OK(dat_ep_post_rdma_write(pair->near, 1, &segment, cookie_of(worker, pair), &target, DAT_COMPLETION_DEFAULT_FLAG));
    segment = segment_of(worker->near_local, back, pair->length);
    OK(dat_ep_post_rdma_read(pair->near, 1, &segment, cookie_of(worker, pair), &target, DAT_COMPLETION_DEFAULT_FLAG));
    segment = segment_of(worker->near_local, message, MESSAGE_BYTES);
    OK(dat_ep_post_send(pair->near, 1, &segment, cookie_of(worker, pair), DAT_COMPLETION_DEFAULT_FLAG));
}

static void bind_window(struct worker *worker, struct pair *pair)
{
    DAT_LMR_TRIPLET segment;
    pair->length = random_number(worker) % MOST_BYTES + 1;
    pair->activity = BINDS;
    segment = segment_of(worker->far_local, far_slot(worker, pair), pair->length);
    OK(dat_rmr_create(far_zone, &pair->window));
    OK(dat_rmr_bind(pair->window, NULL, &segment, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, pair->far, cookie_of(worker, pair),
                    DAT_COMPLETION_DEFAULT_FLAG, &pair->context));
}

static void write_through(struct worker *worker, struct pair *pair)
{
    unsigned char *out = near_slot(worker, pair);
    DAT_LMR_TRIPLET segment = segment_of(worker->near_local, out, pair->length);
    DAT_RMR_TRIPLET target = remote_segment(pair->context, (DAT_VADDR)(uintptr_t)far_slot(worker, pair), pair->length);
    pair->number = random_number(worker);
    pair->activity = WRITES_THROUGH;
    fill(out, pair->length, pair->number);
    OK(dat_ep_post_rdma_write(pair->near, 1, &segment, cookie_of(worker, pair), &target, DAT_COMPLETION_DEFAULT_FLAG));
}

static void end_connection(struct worker *worker, struct pair *pair)
{
    DAT_EP_HANDLE side = random_number(worker) % 2 ? pair->near : pair->far;
    pair->activity = ENDS;
    pair->near_reported = pair->far_reported = 0;
    /* The posted receive is flushed. */
    pair->open = 1;
    OK(dat_ep_disconnect(side, random_number(worker) % 2 ? DAT_CLOSE_ABRUPT_FLAG : DAT_CLOSE_GRACEFUL_FLAG));
}

/* Connects again after the end of a connection. */
static void reconnect(struct worker *worker, struct pair *pair)
{
    if (pair->open != 0 || !pair->near_reported || !pair->far_reported)
        return;
    if (random_number(worker) % 2) {
        OK(dat_ep_reset(pair->near));
        OK(dat_ep_reset(pair->far));
    } else {
        OK(dat_ep_free(pair->near));
        OK(dat_ep_free(pair->far));
        make_endpoints(worker, pair);
    }
    connect_pair(worker, pair);
}

/* Creates and frees objects that no endpoint needs. */
static void churn_objects(struct worker *worker)
{
    DAT_REGION_DESCRIPTION description;
    DAT_LMR_HANDLE region;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
    DAT_VLEN size;
    DAT_VADDR address;
    DAT_PZ_HANDLE zone;
    DAT_CNO_HANDLE notified;
    DAT_EVD_HANDLE events;
    DAT_SRQ_HANDLE shared;
    DAT_SRQ_ATTR attributes;
    OK(dat_pz_create(near_ia, &zone));
    description.for_va = worker->churned_memory;
    OK(dat_lmr_create(near_ia, DAT_MEM_TYPE_VIRTUAL, description, random_number(worker) % CHURNED_BYTES + 1, zone, DAT_MEM_PRIV_ALL_FLAG,
                      DAT_VA_TYPE_VA, &region, &local, &remote, &size, &address));
    OK(dat_cno_create(near_ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &notified));
    OK(dat_evd_create(near_ia, (DAT_COUNT)(random_number(worker) % 100 + 1), notified, DAT_EVD_DTO_FLAG, &events));
    memset(&attributes, 0, sizeof attributes);
    attributes.max_recv_dtos = 8;
    attributes.max_recv_iov = 1;
    attributes.low_watermark = DAT_SRQ_LW_DEFAULT;
    OK(dat_srq_create(near_ia, zone, &attributes, &shared));
    OK(dat_srq_free(shared));
    OK(dat_evd_free(events));
    OK(dat_cno_free(notified));
    OK(dat_lmr_free(region));
    OK(dat_pz_free(zone));
}

static void handle_completion(struct worker *worker, const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *done = &event->event_data.dto_completion_event_data;
    struct pair *pair;
    if (event->event_number == DAT_RMR_BIND_COMPLETION_EVENT) {
        const DAT_RMR_BIND_COMPLETION_EVENT_DATA *bound = &event->event_data.rmr_completion_event_data;
        CHECK(bound->user_cookie.as_64 < endpoints);
        pair = &worker->pairs[bound->user_cookie.as_64];
        CHECK(pair->activity == BINDS && bound->rmr_handle == pair->window && bound->status == DAT_RMR_BIND_SUCCESS);
        write_through(worker, pair);
        return;
    }
    CHECK(event->event_number == DAT_DTO_COMPLETION_EVENT);
    CHECK(done->user_cookie.as_64 < endpoints);
    pair = &worker->pairs[done->user_cookie.as_64];
    CHECK(done->ep_handle == (event->evd_handle == worker->near_transfers ? pair->near : pair->far));
    if (pair->activity == ENDS) {
        CHECK(event->evd_handle == worker->far_transfers && done->status == DAT_DTO_ERR_FLUSHED && pair->open == 1);
        pair->open = 0;
        reconnect(worker, pair);
        return;
    }
    if (done->status != DAT_DTO_SUCCESS) {
        fprintf(stderr, "a transfer ended with status %d while its endpoint did %d\n", done->status, pair->activity);
        exit(1);
    }
    if (pair->activity == WRITES_THROUGH) {
        /* The written bytes are there when the write completes, because both ends use the same device. */
        check_intact(far_slot(worker, pair), pair->length, pair->number, "through a window");
        OK(dat_rmr_free(pair->window));
        worker->windows++;
        pair->activity = RESTS;
        return;
    }
    CHECK(pair->activity == TRANSFERS && pair->open > 0);
    worker->operations++;
    if (--pair->open != 0)
        return;
    check_intact(near_slot(worker, pair) + MOST_BYTES, pair->length, pair->number, "read back");
    check_intact(far_slot(worker, pair) + 2 * MOST_BYTES, MESSAGE_BYTES, pair->number, "a message");
    receive(worker, pair);
    pair->activity = RESTS;
}

static void handle_connection_event(struct worker *worker, const DAT_EVENT *event)
{
    DAT_EP_HANDLE endpoint = event->event_data.connect_event_data.ep_handle;
    const int is_near = event->evd_handle == worker->near_connections;
    struct pair *pair = NULL;
    unsigned at;
    for (at = 0; at < endpoints && pair == NULL; at++)
        if (endpoint == (is_near ? worker->pairs[at].near : worker->pairs[at].far))
            pair = &worker->pairs[at];
    CHECK(pair != NULL);
    if (pair->activity == CONNECTS && event->event_number != DAT_CONNECTION_EVENT_ESTABLISHED) {
        fprintf(stderr, "event %#x instead of a connection\n", event->event_number);
        exit(1);
    }
    CHECK(pair->activity == CONNECTS || (pair->activity == ENDS && (event->event_number == DAT_CONNECTION_EVENT_DISCONNECTED ||
                                                              event->event_number == DAT_CONNECTION_EVENT_BROKEN)));
    CHECK(!*(is_near ? &pair->near_reported : &pair->far_reported));
    *(is_near ? &pair->near_reported : &pair->far_reported) = 1;
    if (pair->activity == ENDS) {
        reconnect(worker, pair);
    } else if (pair->near_reported && pair->far_reported) {
        worker->connections++;
        pair->activity = RESTS;
    }
}

static void handle_request(struct worker *worker, const DAT_EVENT *event)
{
    DAT_CR_HANDLE request = event->event_data.cr_arrival_event_data.cr_handle;
    DAT_CR_PARAM handle_request;
    DAT_UINT32 index;
    CHECK(event->event_number == DAT_CONNECTION_REQUEST_EVENT);
    OK(dat_cr_query(request, DAT_CR_FIELD_ALL, &handle_request));
    CHECK(handle_request.private_data_size >= (DAT_COUNT)sizeof index);
    memcpy(&index, handle_request.private_data, sizeof index);
    CHECK(index < endpoints && worker->pairs[index].activity == CONNECTS);
    OK(dat_cr_accept(request, worker->pairs[index].far, 0, NULL));
}

/* Handles all events; returns 1 if any came. */
static int take_events(struct worker *worker)
{
    DAT_EVENT event;
    int taken = 0;
    while (dat_evd_dequeue(worker->near_transfers, &event) == DAT_SUCCESS)
        handle_completion(worker, &event), taken = 1;
    while (dat_evd_dequeue(worker->far_transfers, &event) == DAT_SUCCESS)
        handle_completion(worker, &event), taken = 1;
    while (dat_evd_dequeue(worker->arrivals, &event) == DAT_SUCCESS)
        handle_request(worker, &event), taken = 1;
    while (dat_evd_dequeue(worker->near_connections, &event) == DAT_SUCCESS)
        handle_connection_event(worker, &event), taken = 1;
    while (dat_evd_dequeue(worker->far_connections, &event) == DAT_SUCCESS)
        handle_connection_event(worker, &event), taken = 1;
    return taken;
}

static int is_at_rest(const struct worker *worker)
{
    unsigned at;
    for (at = 0; at < endpoints; at++)
        if (worker->pairs[at].activity != RESTS)
            return 0;
    return 1;
}

/* Sleeps until a transfer completes, for at most 2 ms. */
static void sleep_a_moment(struct worker *worker)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN code = dat_evd_wait(worker->near_transfers, 2000, 1, &event, &more);
    if (code == DAT_SUCCESS)
        handle_completion(worker, &event);
    else
        CHECK(DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED);
}

/* All threads sleep at once on empty dispatchers: an adapter keeps an object for each thread that ever slept at the same time, and each sample must include them. */
static void sleep_together(struct worker *worker)
{
    DAT_EVENT event;
    DAT_COUNT more;
    pthread_barrier_wait(&all_rest);
    EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(worker->near_transfers, 5 * SECOND, 1, &event, &more));
    pthread_barrier_wait(&all_rest);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    double moved;
    unsigned at;
    sleep_together(worker);
    moved = seconds();
    for (at = 0; at < endpoints; at++) {
        make_endpoints(worker, &worker->pairs[at]);
        connect_pair(worker, &worker->pairs[at]);
    }
    while (!over) {
        struct pair *pair = &worker->pairs[random_number(worker) % endpoints];
        if (pausing && is_at_rest(worker)) {
            pthread_barrier_wait(&all_rest);
            /* Meanwhile the main thread takes a sample. */
            pthread_barrier_wait(&all_rest);
            moved = seconds();
            continue;
        }
        if (!pausing && pair->activity == RESTS) {
            const unsigned chance = random_number(worker) % 1000;
            if (chance < 10)
                end_connection(worker, pair);
            else if (chance < 20)
                churn_objects(worker);
            else if (chance < 150)
                bind_window(worker, pair);
            else
                transfer(worker, pair);
            /* Usually more than one operation is in flight. */
            if (chance % 8 != 0)
                continue;
        }
        if (take_events(worker)) {
            moved = seconds();
            usleep(PAUSE);
        } else {
            sleep_a_moment(worker);
        }
        if (seconds() > moved + 120) {
            fprintf(stderr, "thread %u: nothing has come for two minutes; endpoint 0 does %d\n", worker->index, worker->pairs[0].activity);
            exit(1);
        }
    }
    return NULL;
}

static void open_worker(struct worker *worker, unsigned index, unsigned long long seed)
{
    const DAT_COUNT room = (DAT_COUNT)(endpoints * 8);
    const size_t bytes = (size_t)endpoints * SLOT;
    struct region far;
    memset(worker, 0, sizeof *worker);
    worker->index = index;
    worker->state = 0x9E3779B97F4A7C15u ^ (seed * 64 + index + 1) * 0xD1342543DE82EF95u;
    OK(dat_evd_create(near_ia, room, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &worker->near_transfers));
    OK(dat_evd_create(near_ia, room, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &worker->near_connections));
    OK(dat_evd_create(far_ia, room, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &worker->far_transfers));
    OK(dat_evd_create(far_ia, room, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &worker->far_connections));
    OK(dat_evd_create(far_ia, room, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &worker->arrivals));
    OK(dat_psp_create(far_ia, PORT + index, worker->arrivals, DAT_PSP_CONSUMER_FLAG, &worker->listener));
    worker->near_memory = new_memory(bytes);
    worker->near_local = registered(near_ia, near_zone, worker->near_memory, bytes, DAT_MEM_PRIV_ALL_FLAG).local;
    worker->far_memory = new_memory(bytes);
    far = registered(far_ia, far_zone, worker->far_memory, bytes, DAT_MEM_PRIV_ALL_FLAG);
    worker->far_local = far.local;
    worker->far_remote = far.remote;
    worker->churned_memory = new_memory(CHURNED_BYTES);
}

/* Frees all objects of a worker. */
static void close_worker(struct worker *worker)
{
    unsigned at;
    for (at = 0; at < endpoints; at++) {
        OK(dat_ep_free(worker->pairs[at].near));
        OK(dat_ep_free(worker->pairs[at].far));
    }
    OK(dat_psp_free(worker->listener));
    OK(dat_evd_free(worker->near_transfers));
    OK(dat_evd_free(worker->near_connections));
    OK(dat_evd_free(worker->far_transfers));
    OK(dat_evd_free(worker->far_connections));
    OK(dat_evd_free(worker->arrivals));
}

/* Defines a function that counts the objects of a kind that can still be created. */
#define COUNT_ROOM(name, type, create, destroy)                                                                         \
    static unsigned name(DAT_IA_HANDLE ia, DAT_PZ_HANDLE zone)                                                          \
    {                                                                                                                   \
        static type made[ROOM_MOST];                                                                                    \
        unsigned count = 0, at;                                                                                         \
        DAT_RETURN code = DAT_SUCCESS;                                                                                  \
        (void)ia, (void)zone;                                                                                           \
        while (count < ROOM_MOST && (code = create) == DAT_SUCCESS)                                                     \
            count++;                                                                                                    \
        EXPECT(DAT_INSUFFICIENT_RESOURCES, code);                                                                       \
        for (at = 0; at < count; at++)                                                                                  \
            OK(destroy(made[at]));                                                                                      \
        return count;                                                                                                   \
    }
COUNT_ROOM(room_of_zones, DAT_PZ_HANDLE, dat_pz_create(ia, &made[count]), dat_pz_free)
COUNT_ROOM(room_of_dispatchers, DAT_EVD_HANDLE, dat_evd_create(ia, 1, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &made[count]), dat_evd_free)
COUNT_ROOM(room_of_notified, DAT_CNO_HANDLE, dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &made[count]), dat_cno_free)
COUNT_ROOM(room_of_windows, DAT_RMR_HANDLE, dat_rmr_create(zone, &made[count]), dat_rmr_free)

static DAT_RETURN any_region(DAT_IA_HANDLE ia, DAT_PZ_HANDLE zone, DAT_LMR_HANDLE *region)
{
    DAT_REGION_DESCRIPTION description;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
    DAT_VLEN size;
    DAT_VADDR address;
    description.for_va = workers[0].churned_memory;
    return dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, description, 64, zone, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, region, &local, &remote, &size,
                          &address);
}
COUNT_ROOM(room_of_regions, DAT_LMR_HANDLE, any_region(ia, zone, &made[count]), dat_lmr_free)

static DAT_RETURN any_endpoint(DAT_IA_HANDLE ia, DAT_PZ_HANDLE zone, DAT_EP_HANDLE *endpoint)
{
    const struct worker *worker = &workers[0];
    if (ia == near_ia)
        return dat_ep_create(ia, zone, worker->near_transfers, worker->near_transfers, worker->near_connections, NULL, endpoint);
    return dat_ep_create(ia, zone, worker->far_transfers, worker->far_transfers, worker->far_connections, NULL, endpoint);
}
COUNT_ROOM(room_of_endpoints, DAT_EP_HANDLE, any_endpoint(ia, zone, &made[count]), dat_ep_free)

static DAT_RETURN any_shared(DAT_IA_HANDLE ia, DAT_PZ_HANDLE zone, DAT_SRQ_HANDLE *shared)
{
    DAT_SRQ_ATTR attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.max_recv_dtos = 1;
    attributes.max_recv_iov = 1;
    attributes.low_watermark = DAT_SRQ_LW_DEFAULT;
    return dat_srq_create(ia, zone, &attributes, shared);
}
COUNT_ROOM(room_of_shared, DAT_SRQ_HANDLE, any_shared(ia, zone, &made[count]), dat_srq_free)

static const char *const kinds[KINDS] = {"pz", "evd", "cno", "rmr", "ep", "lmr", "srq"};

/* Counts the objects of each kind that can still be created. */
static void all_room(DAT_IA_HANDLE ia, DAT_PZ_HANDLE zone, unsigned room[KINDS])
{
    room[0] = room_of_zones(ia, zone);
    room[1] = room_of_dispatchers(ia, zone);
    room[2] = room_of_notified(ia, zone);
    room[3] = room_of_windows(ia, zone);
    room[4] = room_of_endpoints(ia, zone);
    room[5] = room_of_regions(ia, zone);
    room[6] = room_of_shared(ia, zone);
}

struct sample {
    long resident;
    long used;
    int descriptors;
    unsigned room[2][KINDS];
};

static struct sample samples_taken[MOST_SAMPLES];

static void print(const struct sample *sample, double after)
{
    int side, kind;
    printf("sample %.0f %ld %ld %d", after, sample->resident, sample->used, sample->descriptors);
    for (side = 0; side < 2; side++)
        for (kind = 0; kind < KINDS; kind++)
            printf("%c%s:%u", kind == 0 ? ' ' : ',', kinds[kind], sample->room[side][kind]);
    printf("\n");
    fflush(stdout);
}

/* Returns the highest memory of some samples: of the process, or allocated. */
static long most_memory(unsigned from, unsigned to, int given_out)
{
    long most_memory = 0;
    for (; from < to; from++) {
        const struct sample *sample = &samples_taken[from];
        const long memory = given_out ? sample->used : sample->resident;
        if (memory > most_memory)
            most_memory = memory;
    }
    return most_memory;
}

/* Returns the highest memory of the last third of the samples, and stores that of the third before; fails if it grows. */
static long judge_memory(unsigned count, int given_out, const char *subject, long slack, long *before)
{
    const unsigned third = count / 3;
    const long after = most_memory(count - third, count, given_out);
    *before = most_memory(count - 2 * third, count - third, given_out);
    if (after - *before > slack) {
        fprintf(stderr, "%s grows: %ld KiB, and %ld KiB later\n", subject, *before, after);
        exit(1);
    }
    return after;
}

static void judge(unsigned count, int on_device)
{
    long before, after;
    unsigned at;
    for (at = 1; at < count; at++) {
        if (samples_taken[at].descriptors != samples_taken[0].descriptors || memcmp(samples_taken[at].room, samples_taken[0].room, sizeof samples_taken[0].room)) {
            fprintf(stderr, "sample %u has other files open, or other room, than the first\n", at + 1);
            exit(1);
        }
    }
    judge_memory(count, 0, "the memory", SLACK, &before);
    after = judge_memory(count, 1, "allocated memory", on_device ? DEVICE_SLACK : USED_SLACK, &before);
    printf("kibibytes %ld %ld\n", before, after);
}

static long resident(void)
{
    long all, pages;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &all, &pages) == 2);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Returns the KiB that malloc has allocated. */
static long used(void)
{
    const struct mallinfo2 info = mallinfo2();
    return (long)((info.uordblks + info.hblkhd) / 1024);
}

/* Counts the open files of the process, without those of this count. */
static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count - 3;
}

int main(int count, char **arguments)
{
    static const struct rlimit address_space = {512 << 20, 512 << 20};
    DAT_IA_ATTR attributes;
    DAT_EVENT event;
    double begin, every;
    unsigned samples, at, sample, made;
    unsigned long long operations = 0, windows = 0, connections = 0;
    CHECK(count == 7 || (count == 8 && strcmp(arguments[7], "device") == 0));
    every = atof(arguments[2]);
    samples = (unsigned)atoi(arguments[3]);
    threads = (unsigned)atoi(arguments[4]);
    endpoints = (unsigned)atoi(arguments[5]);
    CHECK(samples >= 3 && samples <= MOST_SAMPLES && threads > 0 && threads <= MOST_THREADS && endpoints > 0 && endpoints <= MOST_ENDPOINTS);
    every /= samples;
    /* Tables grow to an eighth of the address space, so their room can be counted to its end. */
    CHECK(setrlimit(RLIMIT_AS, &address_space) == 0);
    OK(dat_ia_open(arguments[1], 8, &near_async, &near_ia));
    OK(dat_ia_open(arguments[1], 8, &far_async, &far_ia));
    OK(dat_pz_create(near_ia, &near_zone));
    OK(dat_pz_create(far_ia, &far_zone));
    OK(dat_ia_query(far_ia, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &attributes, 0, NULL));
    far_address = attributes.ia_address_ptr;
    CHECK(pthread_barrier_init(&all_rest, NULL, threads + 1) == 0);
    for (at = 0; at < threads; at++)
        open_worker(&workers[at], at, strtoull(arguments[6], NULL, 0));
    /* The table of handles reaches its final size before the first sample. */
    for (made = 0; made <= QUARANTINE; made++) {
        DAT_CNO_HANDLE notified;
        OK(dat_cno_create(near_ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &notified));
        OK(dat_cno_free(notified));
    }
    for (at = 0; at < threads; at++)
        CHECK(pthread_create(&workers[at].thread, NULL, work, &workers[at]) == 0);
    pthread_barrier_wait(&all_rest);
    /* Meanwhile they sleep. */
    pthread_barrier_wait(&all_rest);
    begin = seconds();
    for (sample = 1; sample <= samples; sample++) {
        struct sample *taken = &samples_taken[sample - 1];
        double left;
        while ((left = begin + every * sample - seconds()) > 0)
            usleep((useconds_t)(left < 0.9 ? left * 1e6 : 9e5));
        pausing = 1;
        pthread_barrier_wait(&all_rest);
        if (count == 7) {
            all_room(near_ia, near_zone, taken->room[0]);
            all_room(far_ia, far_zone, taken->room[1]);
        }
        taken->resident = resident();
        taken->used = used();
        taken->descriptors = descriptors();
        print(taken, seconds() - begin);
        CHECK(getchar() != EOF);
        if (sample == samples)
            over = 1;
        pausing = 0;
        pthread_barrier_wait(&all_rest);
    }
    for (at = 0; at < threads; at++) {
        CHECK(pthread_join(workers[at].thread, NULL) == 0);
        operations += workers[at].operations;
        windows += workers[at].windows;
        connections += workers[at].connections;
        close_worker(&workers[at]);
    }
    CHECK(DAT_GET_TYPE(dat_evd_dequeue(near_async, &event)) == DAT_QUEUE_EMPTY);
    CHECK(DAT_GET_TYPE(dat_evd_dequeue(far_async, &event)) == DAT_QUEUE_EMPTY);
    OK(dat_ia_close(near_ia, DAT_CLOSE_ABRUPT_FLAG));
    OK(dat_ia_close(far_ia, DAT_CLOSE_ABRUPT_FLAG));
    printf("operations %llu windows %llu connections %llu\n", operations, windows, connections);
    judge(samples, count == 8);
    return 0;
}
