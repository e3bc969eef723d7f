/* One thread with two adapters, `alone ADAPTER`: while it waits in one, connections of the other
 * go on.
 *
 * EPK-06, CRA-03, EPD-02, EVW-01 */
#define EDITION_1_2
#include "../../../dat-provider/tests/programs/check.h"

#define QUALIFIER 4712

int main(int count, char **arguments)
{
    struct side near, far;
    int round;
    CHECK(count == 2);
    near = open_side(arguments[1], DAT_MEM_PRIV_ALL_FLAG);
    far = open_side(arguments[1], DAT_MEM_PRIV_ALL_FLAG);
    for (round = 0; round < 3; round++) {
        DAT_LMR_TRIPLET room;
        OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &near.endpoint));
        OK(dat_ep_create(far.ia, far.zone, far.receives, far.requests, far.connections, NULL, &far.endpoint));
        room = piece(&far, 0, 64);
        OK(dat_ep_post_recv(far.endpoint, 1, &room, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
        /* The first adapter resolves the peer's address while the thread waits in the second one
         * for the request. */
        connect_sides(&near, &far, QUALIFIER);
        strcpy(near.memory + 100, "sent");
        room = piece(&near, 100, 64);
        OK(dat_ep_post_send(near.endpoint, 1, &room, cookie(2), DAT_COMPLETION_DEFAULT_FLAG));
        completed(far.receives, far.endpoint, 1, DAT_DTO_RECEIVE, 64);
        completed(near.requests, near.endpoint, 2, DAT_DTO_SEND, 64);
        CHECK(strcmp(far.memory, "sent") == 0);
        OK(dat_ep_disconnect(near.endpoint, DAT_CLOSE_GRACEFUL_FLAG));
        next_event(far.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
        next_event(near.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
        OK(dat_ep_free(near.endpoint));
        OK(dat_ep_free(far.endpoint));
    }
    free_side(&near);
    free_side(&far);
    puts("both went on");
    return 0;
}
