/* DAT 1.2: one shared receive queue feeds two endpoints. Its low watermark requests more buffers.
 *
 *     cc shared.c $(pkg-config --cflags --libs dat) -o shared && ./shared mock0 */
#include <dat/udat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVICE 4711
#define SECOND 1000000
#define CLIENTS 2
#define BUFFERS 4
#define BYTES 64
/* An event comes when fewer buffers than this are left. */
#define FEW 2
#define MESSAGES 3

static char memory[BYTES * (BUFFERS + 1)];
/* The text to send, stored after the buffers. */
static char *const text = memory + BYTES * BUFFERS;

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

static DAT_LMR_TRIPLET piece(DAT_LMR_CONTEXT context, char *start, DAT_VLEN length)
{
    DAT_LMR_TRIPLET piece;
    memset(&piece, 0, sizeof piece);
    piece.lmr_context = context;
    piece.virtual_address = (DAT_VADDR)(size_t)start;
    piece.segment_length = length;
    return piece;
}

/* Posts a buffer to the queue; the cookie is its number. */
static void post(DAT_SRQ_HANDLE queue, DAT_LMR_CONTEXT context, int buffer)
{
    DAT_LMR_TRIPLET where = piece(context, memory + BYTES * buffer, BYTES);
    DAT_DTO_COOKIE cookie;
    cookie.as_64 = (DAT_UINT64)buffer;
    CHECK(dat_srq_post_recv(queue, 1, &where, cookie));
}

int main(int count, char **arguments)
{
    char *name = count > 1 ? arguments[1] : "mock0";
    DAT_EVD_HANDLE asynchronous = DAT_HANDLE_NULL, requests, receives, arrivals, connections;
    DAT_IA_HANDLE adapter;
    DAT_IA_ATTR attributes;
    DAT_PZ_HANDLE zone;
    DAT_LMR_HANDLE region;
    DAT_LMR_CONTEXT context;
    DAT_REGION_DESCRIPTION description;
    DAT_SRQ_ATTR wanted;
    DAT_SRQ_HANDLE queue;
    DAT_SRQ_PARAM state;
    DAT_EP_PARAM usual;
    DAT_EP_HANDLE clients[CLIENTS], servers[CLIENTS];
    DAT_PSP_HANDLE listener;
    DAT_EVENT event;
    int client, buffer, message, taken[MESSAGES];

    CHECK(dat_ia_open(name, 8, &asynchronous, &adapter));
    CHECK(dat_ia_query(adapter, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &attributes, 0, NULL));
    CHECK(dat_pz_create(adapter, &zone));
    CHECK(dat_evd_create(adapter, 16, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &requests));
    CHECK(dat_evd_create(adapter, 16, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &receives));
    CHECK(dat_evd_create(adapter, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &arrivals));
    CHECK(dat_evd_create(adapter, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections));
    description.for_va = memory;
    CHECK(dat_lmr_create(adapter, DAT_MEM_TYPE_VIRTUAL, description, sizeof memory, zone,
                         DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG, &region, &context, NULL, NULL, NULL));

    /* The queue. It begins without a watermark, because an empty queue would cause an event at
     * once. */
    wanted.max_recv_dtos = BUFFERS;
    wanted.max_recv_iov = 1;
    wanted.low_watermark = DAT_SRQ_LW_DEFAULT;
    CHECK(dat_srq_create(adapter, zone, &wanted, &queue));

    /* Endpoints that take buffers from it need all attributes; these are those of a default
     * endpoint. */
    CHECK(dat_psp_create(adapter, SERVICE, arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
    for (client = 0; client < CLIENTS; client++) {
        CHECK(dat_ep_create(adapter, zone, requests, requests, connections, NULL, &clients[client]));
        CHECK(dat_ep_query(clients[client], DAT_EP_FIELD_ALL, &usual));
        CHECK(dat_ep_create_with_srq(adapter, zone, receives, requests, connections, queue, &usual.ep_attr, &servers[client]));
        CHECK(dat_ep_connect(clients[client], attributes.ia_address_ptr, SERVICE, 20 * SECOND, 0, NULL, DAT_QOS_BEST_EFFORT,
                             DAT_CONNECT_DEFAULT_FLAG));
        event = next(arrivals, DAT_CONNECTION_REQUEST_EVENT);
        CHECK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, servers[client], 0, NULL));
        next(connections, DAT_CONNECTION_EVENT_ESTABLISHED);
        next(connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    }

    for (buffer = 0; buffer < BUFFERS; buffer++) {
        post(queue, context, buffer);
    }
    CHECK(dat_srq_set_lw(queue, FEW));

    /* A message takes a buffer, for either endpoint. The third one leaves a single buffer. */
    for (message = 0; message < MESSAGES; message++) {
        DAT_LMR_TRIPLET words;
        DAT_DTO_COOKIE cookie;
        DAT_DTO_COMPLETION_EVENT_DATA *data;
        client = message % CLIENTS;
        sprintf(text, "message %d of client %d", message, client);
        words = piece(context, text, strlen(text) + 1);
        cookie.as_64 = (DAT_UINT64)message;
        CHECK(dat_ep_post_send(clients[client], 1, &words, cookie, DAT_COMPLETION_DEFAULT_FLAG));
        next(requests, DAT_DTO_COMPLETION_EVENT);
        event = next(receives, DAT_DTO_COMPLETION_EVENT);
        data = &event.event_data.dto_completion_event_data;
        if (data->status != DAT_DTO_SUCCESS || data->ep_handle != servers[client]) {
            fprintf(stderr, "status %d, or another endpoint\n", (int)data->status);
            return 1;
        }
        taken[message] = (int)data->user_cookie.as_64;
        printf("%s, in buffer %d\n", memory + BYTES * taken[message], taken[message]);
    }

    /* The queue reports this once, until the watermark is set again. It is no error; the reason
     * says so. */
    event = next(asynchronous, DAT_ASYNC_ERROR_EP_BROKEN);
    if (event.event_data.asynch_error_event_data.dat_handle != queue
        || event.event_data.asynch_error_event_data.reason != DAT_SRQ_LOW_WATERMARK_EVENT) {
        fprintf(stderr, "an event of something else\n");
        return 1;
    }
    /* The buffers that were read are posted again. */
    for (message = 0; message < MESSAGES; message++) {
        post(queue, context, taken[message]);
    }
    CHECK(dat_srq_set_lw(queue, FEW));
    CHECK(dat_srq_query(queue, DAT_SRQ_FIELD_ALL, &state));
    printf("low watermark: filled up to %d buffers\n", (int)state.available_dto_count);

    CHECK(dat_ia_close(adapter, DAT_CLOSE_ABRUPT_FLAG));
    return 0;
}
