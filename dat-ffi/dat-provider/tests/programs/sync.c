/* A host whose processor and device see different memory: reads without the synchronising calls
 * get old bytes, reads with them new ones. */
#include "check.h"

#define LENGTH 1000
#define WRITTEN 300
#define STORED 4000

static DAT_BOOLEAN must_synchronise(const struct side *side)
{
    DAT_PROVIDER_ATTR attributes;
    OK(dat_ia_query(side->ia, NULL, DAT_IA_FIELD_NONE, NULL, DAT_PROVIDER_FIELD_ALL, &attributes));
    return attributes.lmr_sync_req;
}

/* Returns true if all bytes of a range have this value. */
static int holds(const struct side *side, size_t offset, size_t length, char byte)
{
    size_t i;
    for (i = 0; i < length; i++) {
        if (((volatile char *)side->memory)[offset + i] != byte) {
            return 0;
        }
    }
    return 1;
}

/* Writes into the far side's memory, then sends a message. */
static void write_and_tell(struct side *near, struct side *far, size_t offset, char byte)
{
    DAT_LMR_TRIPLET source = piece(near, 0, LENGTH), empty = piece(far, 0, 0);
    DAT_RMR_TRIPLET remote = target(far, offset, LENGTH);
    memset(near->memory, byte, LENGTH);
    OK(dat_ep_post_recv(far->endpoint, 1, &empty, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_post_rdma_write(near->endpoint, 1, &source, cookie(2), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    source = piece(near, 0, 0);
    OK(dat_ep_post_send(near->endpoint, 1, &source, cookie(3), DAT_COMPLETION_DEFAULT_FLAG));
    completed(far->receives, far->endpoint, 1, DAT_DTO_RECEIVE, 0);
    completed(near->requests, near->endpoint, 2, DAT_DTO_RDMA_WRITE, LENGTH);
    completed(near->requests, near->endpoint, 3, DAT_DTO_SEND, 0);
}

/* Reads the far side's memory into the near side's, which needs no call. */
static void read_back(struct side *near, struct side *far, size_t offset)
{
    DAT_LMR_TRIPLET into = piece(near, 0, LENGTH);
    DAT_RMR_TRIPLET remote = target(far, offset, LENGTH);
    memset(near->memory, 'x', LENGTH);
    OK(dat_ep_post_rdma_read(near->endpoint, 1, &into, cookie(4), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    completed(near->requests, near->endpoint, 4, DAT_DTO_RDMA_READ, LENGTH);
}

static void refusals(const struct side *far)
{
    DAT_LMR_TRIPLET pieces[2];
    pieces[0] = piece(far, WRITTEN, LENGTH);
    pieces[1] = piece(far, BYTES - 1, 2);
    EXPECT(DAT_INVALID_PARAMETER, dat_lmr_sync_rdma_write(far->ia, pieces, 2));
    EXPECT(DAT_INVALID_PARAMETER, dat_lmr_sync_rdma_read(far->ia, pieces, 2));
    pieces[1] = piece(far, 0, 8);
    pieces[1].lmr_context ^= 0x10000;
    EXPECT(DAT_INVALID_PARAMETER, dat_lmr_sync_rdma_write(far->ia, pieces, 2));
    EXPECT(DAT_INVALID_PARAMETER, dat_lmr_sync_rdma_read(far->ia, pieces, 2));
    EXPECT(DAT_INVALID_PARAMETER, dat_lmr_sync_rdma_write(far->ia, NULL, 1));
    EXPECT(DAT_INVALID_PARAMETER, dat_lmr_sync_rdma_read(far->ia, NULL, 1));
    EXPECT(DAT_INVALID_HANDLE, dat_lmr_sync_rdma_write(DAT_HANDLE_NULL, pieces, 1));
    EXPECT(DAT_INVALID_HANDLE, dat_lmr_sync_rdma_read(DAT_HANDLE_NULL, pieces, 1));
    OK(dat_lmr_sync_rdma_write(far->ia, NULL, 0));
    OK(dat_lmr_sync_rdma_read(far->ia, NULL, 0));
}

int main(void)
{
    struct side near = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG), far = open_side("sync", DAT_MEM_PRIV_ALL_FLAG);
    DAT_LMR_TRIPLET pieces[2];

    CHECK(!must_synchronise(&near));
    CHECK(must_synchronise(&far));
    OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &near.endpoint));
    OK(dat_ep_create(far.ia, far.zone, far.receives, far.requests, far.connections, NULL, &far.endpoint));
    connect_sides(&near, &far, 4712);

    /* A peer's write is not visible before the call, whatever other calls come first. */
    write_and_tell(&near, &far, WRITTEN, 'a');
    CHECK(holds(&far, WRITTEN, LENGTH, 0));
    refusals(&far);
    pieces[0] = piece(&far, WRITTEN, LENGTH);
    OK(dat_lmr_sync_rdma_read(far.ia, pieces, 1));
    CHECK(holds(&far, WRITTEN, LENGTH, 0));
    OK(dat_lmr_sync_rdma_write(far.ia, pieces, 1));
    CHECK(holds(&far, WRITTEN, LENGTH, 'a'));
    CHECK(holds(&far, 0, WRITTEN, 0) && holds(&far, WRITTEN + LENGTH, STORED - WRITTEN - LENGTH, 0));

    /* A call that names one byte makes this one visible. */
    write_and_tell(&near, &far, WRITTEN, 'b');
    pieces[0] = piece(&far, WRITTEN + 500, 1);
    OK(dat_lmr_sync_rdma_write(far.ia, pieces, 1));
    CHECK(holds(&far, WRITTEN + 500, 1, 'b'));
    pieces[0] = piece(&far, WRITTEN, 500);
    pieces[1] = piece(&far, WRITTEN + 501, LENGTH - 501);
    OK(dat_lmr_sync_rdma_write(far.ia, pieces, 2));
    CHECK(holds(&far, WRITTEN, LENGTH, 'b'));

    /* Bytes stored and synchronised before a write stay next to the written ones. */
    memset(far.memory, 'c', 3 * LENGTH);
    pieces[0] = piece(&far, 0, 3 * LENGTH);
    OK(dat_lmr_sync_rdma_write(far.ia, pieces, 1));
    write_and_tell(&near, &far, LENGTH, 'd');
    OK(dat_lmr_sync_rdma_write(far.ia, pieces, 1));
    CHECK(holds(&far, 0, LENGTH, 'c') && holds(&far, LENGTH, LENGTH, 'd') && holds(&far, 2 * LENGTH, LENGTH, 'c'));

    /* A peer does not read stored bytes before the call. */
    memset(far.memory + STORED, 'e', LENGTH);
    read_back(&near, &far, STORED);
    CHECK(holds(&near, 0, LENGTH, 0));
    pieces[0] = piece(&far, STORED, LENGTH / 2);
    pieces[1] = piece(&far, STORED + LENGTH / 2, LENGTH / 2);
    OK(dat_lmr_sync_rdma_read(far.ia, pieces, 2));
    read_back(&near, &far, STORED);
    CHECK(holds(&near, 0, LENGTH, 'e'));

    OK(dat_ep_disconnect(near.endpoint, DAT_CLOSE_ABRUPT_FLAG));
    next_event(near.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    next_event(far.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_free(near.endpoint));
    OK(dat_ep_free(far.endpoint));
    free_side(&near);
    free_side(&far);
    return 0;
}
