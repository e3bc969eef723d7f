/* Posts, dequeues and sleeps between two endpoints of one process, for an instruction counter: each part is written to a file of its own. The argument
 * is the adapter's name. */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>
#include <dat2/udat.h>

#define COUNT 64
#define PORT 45300

static void check(DAT_RETURN result, const char *what)
{
    if (result != DAT_SUCCESS) {
        fprintf(stderr, "%s: %#x\n", what, result);
        exit(1);
    }
}

/* Of the device that is not there. */
void hold_next_request(void) __attribute__((weak));

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;

struct side {
    DAT_EP_HANDLE ep;
    DAT_EVD_HANDLE transfers, connection;
};

static void make(struct side *side)
{
    DAT_EP_ATTR wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.service_type = DAT_SERVICE_TYPE_RC;
    wanted.max_rdma_size = 1 << 20;
    wanted.max_recv_dtos = wanted.max_request_dtos = 2 * COUNT;
    wanted.max_recv_iov = wanted.max_request_iov = 1;
    check(dat_evd_create(ia, 4 * COUNT, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &side->transfers), "evd_create");
    check(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &side->connection), "evd_create");
    check(dat_ep_create(ia, pz, side->transfers, side->transfers, side->connection, &wanted, &side->ep), "ep_create");
}

static void wait_for(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER wanted, DAT_EVENT *event)
{
    DAT_COUNT more;
    check(dat_evd_wait(evd, 10 * 1000 * 1000, 1, event, &more), "evd_wait");
    if (event->event_number != wanted) {
        fprintf(stderr, "event %#x came instead of %#x\n", event->event_number, wanted);
        exit(1);
    }
}

int main(int count, char **arguments)
{
    static char memory[8192];
    DAT_EVD_HANDLE asynchronous = DAT_HANDLE_NULL, requests;
    DAT_REGION_DESCRIPTION described = {.for_va = memory};
    DAT_LMR_TRIPLET piece = {.virtual_address = (uintptr_t)memory, .segment_length = 8};
    DAT_RMR_TRIPLET remote = {.virtual_address = (uintptr_t)memory + 4096, .segment_length = 8};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    DAT_DTO_COOKIE cookie = {.as_64 = 17};
    struct side here, there;
    DAT_LMR_HANDLE lmr;
    DAT_PSP_HANDLE psp;
    DAT_VLEN length;
    DAT_VADDR start;
    DAT_EVENT event;
    DAT_RETURN result = 0;

    if (count != 2)
        return 2;
    check(dat_ia_open(arguments[1], 8, &asynchronous, &ia), "ia_open");
    check(dat_pz_create(ia, &pz), "pz_create");
    check(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests), "evd_create");
    check(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, described, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &piece.lmr_context,
                         &remote.rmr_context, &length, &start),
          "lmr_create");
    make(&here);
    make(&there);
    check(dat_psp_create(ia, PORT, requests, DAT_PSP_CONSUMER_FLAG, &psp), "psp_create");
    check(dat_ep_connect(here.ep, (DAT_IA_ADDRESS_PTR)&address, PORT, 10 * 1000 * 1000, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG),
          "ep_connect");
    wait_for(requests, DAT_CONNECTION_REQUEST_EVENT, &event);
    check(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, there.ep, 0, NULL), "cr_accept");
    wait_for(there.connection, DAT_CONNECTION_EVENT_ESTABLISHED, &event);
    wait_for(here.connection, DAT_CONNECTION_EVENT_ESTABLISHED, &event);

    /* The first time is for what is done only once. */
    for (int time = 0; time < 2; time++) {
        CALLGRIND_ZERO_STATS;
        CALLGRIND_TOGGLE_COLLECT;
        for (int index = 0; index < COUNT; index++)
            result |= dat_ep_post_rdma_write(here.ep, 1, &piece, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG);
        for (int index = 0; index < COUNT; index++) {
            result |= dat_evd_dequeue(here.transfers, &event);
            result |= event.event_number != DAT_DTO_COMPLETION_EVENT || event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS;
        }
        CALLGRIND_TOGGLE_COLLECT;
        check(result, "post or dequeue");
    }
    CALLGRIND_DUMP_STATS_AT("pairs");

    for (int time = 0; time < 2; time++) {
        CALLGRIND_ZERO_STATS;
        for (int index = 0; index < COUNT; index++) {
            DAT_COUNT more;
            hold_next_request();
            result |= dat_ep_post_rdma_write(here.ep, 1, &piece, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG);
            CALLGRIND_TOGGLE_COLLECT;
            result |= dat_evd_wait(here.transfers, DAT_TIMEOUT_INFINITE, 1, &event, &more);
            CALLGRIND_TOGGLE_COLLECT;
            result |= event.event_number != DAT_DTO_COMPLETION_EVENT || event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS;
        }
        check(result, "post or wait");
    }
    CALLGRIND_DUMP_STATS_AT("sleeps");
    printf("%d of each\n", COUNT);
    fflush(stdout);
    _Exit(0);
}
