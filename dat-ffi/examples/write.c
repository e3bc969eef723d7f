/* DAT 1.2: connects two endpoints of one adapter; one writes into the memory of the other.
 *
 *     cc write.c $(pkg-config --cflags --libs dat) -o write && ./write mock0 */
#include <dat/udat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVICE 4711
#define SECOND 1000000

static char memory[4096];

/* Ends the program with the error in words, unless a call succeeded. */
static void check(DAT_RETURN code, const char *call)
{
    const char *type = "?", *subtype = "";
    if (code == DAT_SUCCESS) {
        return;
    }
    dat_strerror(code, &type, &subtype);
    fprintf(stderr, "%s: %s %s\n", call, type, subtype);
    exit(1);
}
#define CHECK(call) check((call), #call)

/* Waits for the next event, which must have this number. */
static DAT_EVENT next(DAT_EVD_HANDLE dispatcher, DAT_EVENT_NUMBER expected)
{
    DAT_EVENT event;
    DAT_COUNT more;
    CHECK(dat_evd_wait(dispatcher, 20 * SECOND, 1, &event, &more));
    if (event.event_number != expected) {
        fprintf(stderr, "event 0x%x in place of 0x%x\n", (unsigned)event.event_number, (unsigned)expected);
        exit(1);
    }
    return event;
}

int main(int count, char **arguments)
{
    char *name = count > 1 ? arguments[1] : "mock0";
    DAT_EVD_HANDLE asynchronous = DAT_HANDLE_NULL, requests, arrivals, here, there;
    DAT_IA_HANDLE adapter;
    DAT_IA_ATTR attributes;
    DAT_PZ_HANDLE zone;
    DAT_LMR_HANDLE region;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
    DAT_REGION_DESCRIPTION description;
    DAT_EP_HANDLE active, passive;
    DAT_PSP_HANDLE listener;
    DAT_LMR_TRIPLET source;
    DAT_RMR_TRIPLET target;
    DAT_DTO_COOKIE cookie;
    DAT_EVENT event;

    /* An adapter and the objects that all others need: a zone, event dispatchers, memory. */
    CHECK(dat_ia_open(name, 8, &asynchronous, &adapter));
    CHECK(dat_ia_query(adapter, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &attributes, 0, NULL));
    CHECK(dat_pz_create(adapter, &zone));
    CHECK(dat_evd_create(adapter, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &requests));
    CHECK(dat_evd_create(adapter, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &arrivals));
    CHECK(dat_evd_create(adapter, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &here));
    CHECK(dat_evd_create(adapter, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &there));
    description.for_va = memory;
    CHECK(dat_lmr_create(adapter, DAT_MEM_TYPE_VIRTUAL, description, sizeof memory, zone, DAT_MEM_PRIV_ALL_FLAG, &region, &local,
                         &remote, NULL, NULL));

    /* Two endpoints: one listens, the other one connects. */
    CHECK(dat_ep_create(adapter, zone, requests, requests, here, NULL, &active));
    CHECK(dat_ep_create(adapter, zone, requests, requests, there, NULL, &passive));
    CHECK(dat_psp_create(adapter, SERVICE, arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
    CHECK(dat_ep_connect(active, attributes.ia_address_ptr, SERVICE, 20 * SECOND, 0, NULL, DAT_QOS_BEST_EFFORT,
                         DAT_CONNECT_DEFAULT_FLAG));
    event = next(arrivals, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, passive, 0, NULL));
    next(here, DAT_CONNECTION_EVENT_ESTABLISHED);
    next(there, DAT_CONNECTION_EVENT_ESTABLISHED);

    /* The Write, from the start of the memory to its middle. A remote peer would have got
     * address and context by a message. */
    strcpy(memory, "written by RDMA");
    memset(&source, 0, sizeof source);
    source.lmr_context = local;
    source.virtual_address = (DAT_VADDR)(size_t)memory;
    source.segment_length = 16;
    memset(&target, 0, sizeof target);
    target.rmr_context = remote;
    target.target_address = (DAT_VADDR)(size_t)(memory + 2048);
    target.segment_length = 16;
    cookie.as_64 = 1;
    CHECK(dat_ep_post_rdma_write(active, 1, &source, cookie, &target, DAT_COMPLETION_DEFAULT_FLAG));
    event = next(requests, DAT_DTO_COMPLETION_EVENT);
    printf("status %d, %s\n", (int)event.event_data.dto_completion_event_data.status, memory + 2048);

    CHECK(dat_ia_close(adapter, DAT_CLOSE_ABRUPT_FLAG));
    return 0;
}
