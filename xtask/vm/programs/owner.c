/*
 * The owner of memory that grants peers access to parts of it, and an honest peer.
 *
 * owner ADAPTER: binds windows for each peer that connects, until SIGTERM. After each hostile peer it checks that no other memory has changed.
 * owner ADAPTER ADDRESS: an honest peer, which writes, reads back and compares until SIGTERM. It prints `progress DONE TURNED-AWAY` repeatedly.
 *
 * RMB-24, RMB-27, RMF-01, RMF-02, LMC-05
 */
#define EDITION_1_2
#include "../../../dat-ffi/dat-provider/tests/programs/check.h"
#include "common.h"
#include "offer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#define MOST 8
#define WINDOWS 5
#define STEPS 8
/* The pages of the regions; a page without remote rights precedes and follows each page that peers may access. */
enum page { BEFORE, WRITABLE, BETWEEN, READABLE, BEHIND, LEFT, MOVED, LAST, SECRET, OTHERS, OTHER, OTHERS_END, MESSAGES, PAGES = MESSAGES + 2 * MOST };

struct peer {
    DAT_EP_HANDLE endpoint;
    enum peer_kind kind;
    DAT_RMR_HANDLE windows[WINDOWS];
    /* Number of windows bound so far; the offer is sent when all are. */
    int step;
    struct offer offer;
};

static char *memory;
static DAT_IA_HANDLE ia;
static DAT_EVD_HANDLE async, events;
static DAT_PZ_HANDLE zone_of_hostile, zone_of_honest;
/* Each window has a region of its length, because soft-RoCE checks only the bounds of the region. */
static struct region windows_to[PAGES], secret, other, message_regions[2];
static struct peer peers[MOST];
static struct grant window_of_honest;
static struct {
    unsigned honest, hostile, silent, rejected, full, disconnected, broken, not_completed, received, refused, flushed;
} counts;

static char *page(int number)
{
    return memory + (size_t)number * PAGE;
}

static DAT_LMR_TRIPLET segment(const struct region *region, const char *begin, DAT_VLEN length)
{
    return segment_of(region->local, begin, length);
}

static struct grant grant_of(DAT_RMR_CONTEXT context, int number, uint32_t length)
{
    struct grant grant;
    grant.context = context;
    grant.address = (uint64_t)(uintptr_t)page(number);
    grant.length = length;
    return grant;
}

static void fill_page(int number)
{
    memset(page(number), 0x40 + number, PAGE);
}

/* Checks that the page has its initial bytes, from an offset. */
static void check_unchanged(int number, size_t from)
{
    for (; from < PAGE; from++) {
        if (page(number)[from] != 0x40 + number) {
            fprintf(stderr, "byte %zu of page %d has changed to %#x\n", from, number, page(number)[from]);
            exit(1);
        }
    }
}

static void check_other_pages(void)
{
    int number;
    for (number = BEFORE; number <= OTHERS_END; number++)
        check_unchanged(number, number == WRITABLE || number == OTHER ? GRANTED : 0);
    fill_page(WRITABLE);
}

/* Returns the buffer for the peer's messages, or with `sent` the one for messages to the peer. */
static char *message_buffer(const struct peer *peer, int sent)
{
    return page(MESSAGES + 2 * (int)(peer - peers) + sent);
}

static const struct region *message_region_of(const struct peer *peer)
{
    return &message_regions[peer->kind == HONEST];
}

static void bind_window(struct peer *peer, int window, const struct region *region, int number, DAT_VLEN length, int privileges,
                        DAT_RMR_CONTEXT *context)
{
    DAT_LMR_TRIPLET bound = segment(region, page(number), length);
    OK((dat_rmr_bind)(peer->windows[window], &bound, (DAT_MEM_PRIV_FLAGS)privileges, peer->endpoint, cookie(1), DAT_COMPLETION_DEFAULT_FLAG,
                    context));
}

/* Binds the next window; after the last one, sends the offer to the peer. */
static void next_step(struct peer *peer)
{
    const int read = DAT_MEM_PRIV_REMOTE_READ_FLAG, write = DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
    struct offer *offer = &peer->offer;
    DAT_RMR_CONTEXT context = 0;
    DAT_LMR_TRIPLET sent;
    int step = peer->step++;
    if (peer->kind == HONEST && step == 0) {
        bind_window(peer, 0, &other, OTHER, GRANTED, read | write, &context);
        window_of_honest = offer->writable = grant_of(context, OTHER, GRANTED);
        return;
    }
    if (peer->kind == HOSTILE && step < STEPS) {
        switch (step) {
        case 0:
            bind_window(peer, 0, &windows_to[WRITABLE], WRITABLE, GRANTED, write, &context);
            offer->writable = grant_of(context, WRITABLE, GRANTED);
            return;
        case 1:
            bind_window(peer, 1, &windows_to[READABLE], READABLE, GRANTED, read, &context);
            offer->readable = grant_of(context, READABLE, GRANTED);
            return;
        case 2:
            bind_window(peer, 2, &windows_to[LEFT], LEFT, GRANTED, read | write, &context);
            offer->rebound = grant_of(context, LEFT, GRANTED);
            return;
        case 3:
            bind_window(peer, 2, &windows_to[MOVED], MOVED, GRANTED, read, &context);
            offer->moved = grant_of(context, MOVED, GRANTED);
            return;
        case 4:
            bind_window(peer, 3, &windows_to[LEFT], LEFT, GRANTED, read | write, &context);
            offer->unbound = grant_of(context, LEFT, GRANTED);
            return;
        case 5:
            bind_window(peer, 3, &windows_to[LEFT], LEFT, 0, 0, &context);
            return;
        case 6:
            bind_window(peer, 4, &windows_to[LEFT], LEFT, GRANTED, read | write, &context);
            offer->freed = grant_of(context, LEFT, GRANTED);
            return;
        case 7:
            OK(dat_rmr_free(peer->windows[4]));
            peer->windows[4] = DAT_HANDLE_NULL;
            peer->step++;
            break;
        }
    }
    /* A region without remote rights has no context for peers, so they try its local one. */
    offer->secret = grant_of((DAT_RMR_CONTEXT)secret.local, SECRET, PAGE);
    offer->other = grant_of(other.remote, OTHERS, 3 * PAGE);
    offer->other_window = window_of_honest;
    memcpy(message_buffer(peer, 1), offer, sizeof *offer);
    sent = segment(message_region_of(peer), message_buffer(peer, 1), sizeof *offer);
    OK(dat_ep_post_send(peer->endpoint, 1, &sent, cookie(2), DAT_COMPLETION_DEFAULT_FLAG));
}

static struct peer *peer_of(DAT_EP_HANDLE endpoint)
{
    int at;
    for (at = 0; at < MOST; at++)
        if (peers[at].endpoint == endpoint)
            return &peers[at];
    return NULL;
}

static void handle_request(DAT_CR_HANDLE request)
{
    struct peer *peer = peer_of(DAT_HANDLE_NULL);
    struct greeting greeting;
    DAT_CR_PARAM parameters;
    DAT_LMR_TRIPLET room;
    int window;
    OK(dat_cr_query(request, DAT_CR_FIELD_ALL, &parameters));
    memset(&greeting, 0, sizeof greeting);
    if (parameters.private_data_size >= (DAT_COUNT)sizeof greeting)
        memcpy(&greeting, parameters.private_data, sizeof greeting);
    if (greeting.magic != GREETING || greeting.kind < HONEST || greeting.kind > SILENT) {
        counts.rejected++;
        OK((dat_cr_reject)(request));
        return;
    }
    if (peer == NULL) {
        counts.full++;
        OK((dat_cr_reject)(request));
        return;
    }
    memset(peer, 0, sizeof *peer);
    peer->kind = (enum peer_kind)greeting.kind;
    OK(dat_ep_create(ia, peer->kind == HONEST ? zone_of_honest : zone_of_hostile, events, events, events, NULL, &peer->endpoint));
    for (window = 0; window < WINDOWS; window++)
        OK(dat_rmr_create(peer->kind == HONEST ? zone_of_honest : zone_of_hostile, &peer->windows[window]));
    room = segment(message_region_of(peer), message_buffer(peer, 0), 64);
    OK(dat_ep_post_recv(peer->endpoint, 1, &room, cookie(3), DAT_COMPLETION_DEFAULT_FLAG));
    /* A peer that gave up meanwhile cannot be accepted. */
    if (dat_cr_accept(request, peer->endpoint, 0, NULL) != DAT_SUCCESS) {
        counts.not_completed++;
        OK(dat_ep_free(peer->endpoint));
        for (window = 0; window < WINDOWS; window++)
            OK(dat_rmr_free(peer->windows[window]));
        peer->endpoint = DAT_HANDLE_NULL;
        return;
    }
    *(peer->kind == HONEST ? &counts.honest : peer->kind == HOSTILE ? &counts.hostile : &counts.silent) += 1;
}

static void free_peer(struct peer *peer)
{
    int window;
    OK(dat_ep_free(peer->endpoint));
    for (window = 0; window < WINDOWS; window++)
        if (peer->windows[window] != DAT_HANDLE_NULL)
            OK(dat_rmr_free(peer->windows[window]));
    if (peer->kind == HONEST)
        window_of_honest.length = 0;
    else
        check_other_pages();
    peer->endpoint = DAT_HANDLE_NULL;
}

static void handle_event(const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *done = &event->event_data.dto_completion_event_data;
    struct peer *peer;
    switch (event->event_number) {
    case DAT_CONNECTION_REQUEST_EVENT:
        handle_request(event->event_data.cr_arrival_event_data.cr_handle);
        return;
    case DAT_CONNECTION_EVENT_ESTABLISHED:
        peer = peer_of(event->event_data.connect_event_data.ep_handle);
        CHECK(peer != NULL);
        next_step(peer);
        return;
    case DAT_CONNECTION_EVENT_DISCONNECTED:
    case DAT_CONNECTION_EVENT_BROKEN:
    case DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR:
        peer = peer_of(event->event_data.connect_event_data.ep_handle);
        CHECK(peer != NULL);
        *(event->event_number == DAT_CONNECTION_EVENT_DISCONNECTED ? &counts.disconnected
          : event->event_number == DAT_CONNECTION_EVENT_BROKEN     ? &counts.broken
                                                                   : &counts.not_completed) += 1;
        free_peer(peer);
        return;
    case DAT_RMR_BIND_COMPLETION_EVENT: {
        const DAT_RMR_BIND_COMPLETION_EVENT_DATA *bound = &event->event_data.rmr_completion_event_data;
        int at;
        for (at = 0; at < MOST * WINDOWS; at++)
            if (peers[at / WINDOWS].endpoint != DAT_HANDLE_NULL && peers[at / WINDOWS].windows[at % WINDOWS] == bound->rmr_handle)
                break;
        /* The bind of a peer that has gone. */
        if (at == MOST * WINDOWS || bound->status != DAT_RMR_BIND_SUCCESS)
            return;
        next_step(&peers[at / WINDOWS]);
        return;
    }
    case DAT_DTO_COMPLETION_EVENT:
        if (done->user_cookie.as_64 != 3)
            return;
        *(done->status == DAT_DTO_SUCCESS       ? &counts.received
          : done->status == DAT_DTO_ERR_FLUSHED ? &counts.flushed
                                                : &counts.refused) += 1;
        if (done->status != DAT_DTO_SUCCESS && done->status != DAT_DTO_ERR_FLUSHED)
            printf("a receive ended with status %d\n", done->status);
        return;
    default:
        fprintf(stderr, "event %#x came\n", event->event_number);
        exit(1);
    }
}

static void run_owner(void)
{
    DAT_PSP_HANDLE listener;
    DAT_EVENT event;
    DAT_COUNT more;
    int number;
    DAT_RETURN code;
    memory = aligned_alloc(PAGE, (size_t)PAGES * PAGE);
    CHECK(memory != NULL);
    for (number = 0; number < PAGES; number++)
        fill_page(number);
    OK(dat_pz_create(ia, &zone_of_hostile));
    OK(dat_pz_create(ia, &zone_of_honest));
    for (number = WRITABLE; number <= MOVED; number++)
        windows_to[number] = registered(ia, zone_of_hostile, page(number), GRANTED, LOCAL);
    secret = registered(ia, zone_of_hostile, page(SECRET), PAGE, LOCAL);
    other = registered(ia, zone_of_honest, page(OTHERS), 3 * PAGE, DAT_MEM_PRIV_ALL_FLAG);
    message_regions[0] = registered(ia, zone_of_hostile, page(MESSAGES), 2 * MOST * PAGE, LOCAL);
    message_regions[1] = registered(ia, zone_of_honest, page(MESSAGES), 2 * MOST * PAGE, LOCAL);
    OK(dat_psp_create(ia, OWNER_PORT, events, DAT_PSP_CONSUMER_FLAG, &listener));
    while (!over) {
        code = dat_evd_wait(events, SECOND / 5, 1, &event, &more);
        if (code == DAT_SUCCESS)
            handle_event(&event);
        else
            CHECK(DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED || DAT_GET_TYPE(code) == DAT_INTERRUPTED_CALL);
        fflush(stdout);
    }
    check_other_pages();
    OK(dat_psp_free(listener));
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    printf("owner: %u honest, %u hostile and %u silent peers; %u requests rejected, %u when full; %u disconnected, %u broken, %u not completed; "
           "%u received, %u refused, %u flushed\n",
           counts.honest, counts.hostile, counts.silent, counts.rejected, counts.full, counts.disconnected, counts.broken,
           counts.not_completed, counts.received, counts.refused, counts.flushed);
}

/* Waits for the next event; returns 0 at the timeout. */
static DAT_EVENT_NUMBER wait_event(DAT_EVENT *event)
{
    DAT_COUNT more;
    DAT_RETURN code = DAT_INTERRUPTED_CALL;
    while (DAT_GET_TYPE(code) == DAT_INTERRUPTED_CALL)
        code = dat_evd_wait(events, 20 * SECOND, 1, event, &more);
    return code == DAT_SUCCESS ? event->event_number : (DAT_EVENT_NUMBER)0;
}

static void expect_completion(DAT_UINT64 value)
{
    DAT_EVENT event;
    CHECK(wait_event(&event) == DAT_DTO_COMPLETION_EVENT);
    CHECK(event.event_data.dto_completion_event_data.user_cookie.as_64 == value);
    CHECK(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
}

static void print_progress(unsigned rounds, unsigned turned_away)
{
    printf("progress %u %u\n", rounds, turned_away);
    fflush(stdout);
}

static void run_honest_peer(const char *address)
{
    struct greeting greeting = {GREETING, HONEST};
    struct sockaddr_in owner;
    struct region region;
    DAT_EP_HANDLE endpoint;
    DAT_EVENT event;
    DAT_LMR_TRIPLET local;
    unsigned connections = 0, rounds = 0, turned_away = 0;
    memory = aligned_alloc(PAGE, 3 * PAGE);
    CHECK(memory != NULL);
    OK(dat_pz_create(ia, &zone_of_honest));
    region = registered(ia, zone_of_honest, page(0), 3 * PAGE, LOCAL);
    memset(&owner, 0, sizeof owner);
    owner.sin_family = AF_INET;
    CHECK(inet_pton(AF_INET, address, &owner.sin_addr) == 1);
    while (!over) {
        struct offer offer;
        DAT_RMR_TRIPLET remote;
        int round;
        DAT_EVENT_NUMBER number;
        OK(dat_ep_create(ia, zone_of_honest, events, events, events, NULL, &endpoint));
        local = segment(&region, page(2), sizeof offer);
        OK(dat_ep_post_recv(endpoint, 1, &local, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
        OK(dat_ep_connect(endpoint, (struct sockaddr *)&owner, OWNER_PORT, 20 * SECOND, sizeof greeting, &greeting, DAT_QOS_BEST_EFFORT,
                          DAT_CONNECT_DEFAULT_FLAG));
        number = wait_event(&event);
        if (number == DAT_CONNECTION_EVENT_PEER_REJECTED) {
            /* A flood may use all connections of the owner. */
            print_progress(rounds, ++turned_away);
            OK(dat_ep_free(endpoint));
            /* Its receive is flushed. */
            usleep(100000);
            while (dat_evd_dequeue(events, &event) == DAT_SUCCESS)
                ;
            continue;
        }
        if (number != DAT_CONNECTION_EVENT_ESTABLISHED) {
            fprintf(stderr, "event %#x came instead of a connection\n", number);
            exit(1);
        }
        expect_completion(1);
        memcpy(&offer, page(2), sizeof offer);
        remote = remote_segment(offer.writable.context, offer.writable.address, GRANTED);
        for (round = 0; round < 50 && !over; round++, rounds++) {
            memset(page(0), (int)(rounds % 251), PAGE);
            memset(page(1), 255, PAGE);
            local = segment(&region, page(0), GRANTED);
            OK(dat_ep_post_rdma_write(endpoint, 1, &local, cookie(2), &remote, DAT_COMPLETION_DEFAULT_FLAG));
            expect_completion(2);
            local = segment(&region, page(1), GRANTED);
            OK(dat_ep_post_rdma_read(endpoint, 1, &local, cookie(4), &remote, DAT_COMPLETION_DEFAULT_FLAG));
            expect_completion(4);
            CHECK(memcmp(page(0), page(1), GRANTED) == 0);
            if (rounds % 10 == 0)
                print_progress(rounds + 1, turned_away);
        }
        OK(dat_ep_disconnect(endpoint, DAT_CLOSE_GRACEFUL_FLAG));
        CHECK(wait_event(&event) == DAT_CONNECTION_EVENT_DISCONNECTED);
        OK(dat_ep_free(endpoint));
        connections++;
    }
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    printf("honest: %u connections, %u times written and read back, %u times turned away\n", connections, rounds, turned_away);
}

int main(int count, char **arguments)
{
    CHECK(count >= 2);
    end_by_signal();
    OK(dat_ia_open(arguments[1], 8, &async, &ia));
    OK(dat_evd_create(ia, 512, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG,
                      &events));
    if (count == 2)
        run_owner();
    else
        run_honest_peer(arguments[2]);
    return 0;
}
