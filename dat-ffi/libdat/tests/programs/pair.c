/* Two processes on a device. `pair ADAPTER` waits. `pair ADAPTER ADDRESS` connects, writes,
 * sends, and gets an answer.
 *
 * EPK-06, CRA-03, EPW-10, EPS-01, EPV-01, LSW-22, EPD-02, EPD-05 */
#define EDITION_1_2
#include "../../../dat-provider/tests/programs/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#define QUALIFIER 4711
#define WRITES 1000

/* Memory that the peer may write, sent in the private data of an acceptance. */
struct offer {
    DAT_RMR_CONTEXT context;
    DAT_VADDR address;
};

static struct side side;

static void wait_for_a_peer(void)
{
    struct offer offer;
    DAT_PSP_HANDLE listener;
    DAT_LMR_TRIPLET answer;
    DAT_EVENT event;
    offer.context = side.remote;
    offer.address = (DAT_VADDR)(uintptr_t)(side.memory + 1000);
    OK(dat_psp_create(side.ia, QUALIFIER, side.arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
    event = next_event(side.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, side.endpoint, sizeof offer, &offer));
    next_event(side.connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    completed(side.receives, side.endpoint, 1, DAT_DTO_RECEIVE, 64);
    CHECK(strcmp(side.memory, "sent") == 0 && strcmp(side.memory + 1000, "written") == 0);
    strcpy(side.memory + 200, "answer");
    answer = piece(&side, 200, 64);
    OK(dat_ep_post_send(side.endpoint, 1, &answer, cookie(2), DAT_COMPLETION_DEFAULT_FLAG));
    completed(side.requests, side.endpoint, 2, DAT_DTO_SEND, 64);
    next_event(side.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_psp_free(listener));
}

static void talk_to(const char *address)
{
    struct sockaddr_in peer;
    struct offer offer;
    DAT_LMR_TRIPLET local;
    DAT_RMR_TRIPLET remote;
    DAT_EVENT event;
    int round;
    memset(&peer, 0, sizeof peer);
    peer.sin_family = AF_INET;
    CHECK(inet_pton(AF_INET, address, &peer.sin_addr) == 1);
    OK(dat_ep_connect(side.endpoint, (struct sockaddr *)&peer, QUALIFIER, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    event = next_event(side.connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    CHECK(event.event_data.connect_event_data.private_data_size >= (DAT_COUNT)sizeof offer);
    memcpy(&offer, event.event_data.connect_event_data.private_data, sizeof offer);
    memset(&remote, 0, sizeof remote);
    remote.rmr_context = offer.context;
    remote.target_address = offer.address;
    remote.segment_length = 64;
    strcpy(side.memory + 100, "written");
    local = piece(&side, 100, 64);
    for (round = 0; round < WRITES; round++) {
        OK(dat_ep_post_rdma_write(side.endpoint, 1, &local, cookie(round), &remote, DAT_COMPLETION_DEFAULT_FLAG));
        completed(side.requests, side.endpoint, round, DAT_DTO_RDMA_WRITE, 64);
    }
    strcpy(side.memory + 100, "sent");
    OK(dat_ep_post_send(side.endpoint, 1, &local, cookie(3), DAT_COMPLETION_DEFAULT_FLAG));
    completed(side.requests, side.endpoint, 3, DAT_DTO_SEND, 64);
    completed(side.receives, side.endpoint, 1, DAT_DTO_RECEIVE, 64);
    CHECK(strcmp(side.memory, "answer") == 0);
    OK(dat_ep_disconnect(side.endpoint, DAT_CLOSE_GRACEFUL_FLAG));
    next_event(side.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
}

int main(int count, char **arguments)
{
    DAT_LMR_TRIPLET room;
    CHECK(count >= 2);
    side = open_side(arguments[1], DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_ep_create(side.ia, side.zone, side.receives, side.requests, side.connections, NULL, &side.endpoint));
    room = piece(&side, 0, 64);
    OK(dat_ep_post_recv(side.endpoint, 1, &room, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    if (count == 2) {
        wait_for_a_peer();
    } else {
        talk_to(arguments[2]);
    }
    OK(dat_ep_free(side.endpoint));
    free_side(&side);
    puts("both have talked");
    return 0;
}
