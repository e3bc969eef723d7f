/* The extensions for InfiniBand: RDMA Writes with immediate data and atomics. Adapters without
 * the option have none. */
#include "check.h"
#include <netinet/in.h>

#include <dat2/dat_ib_extensions.h>

/* The next event is extended, with this cookie, endpoint, operation, length and type. */
static DAT_IB_EXTENSION_EVENT_DATA extended(DAT_EVD_HANDLE evd, DAT_EP_HANDLE ep, DAT_UINT64 value, unsigned operation,
                                            DAT_SEG_LENGTH length, DAT_IB_EXT_TYPE kind)
{
    DAT_EVENT event = next_event(evd, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
    DAT_DTO_COMPLETION_EVENT_DATA *data = &event.event_data.dto_completion_event_data;
    DAT_IB_EXTENSION_EVENT_DATA told;
    memcpy(&told, event.event_extension_data, sizeof told.type + sizeof told.status + sizeof told.val);
    CHECK(data->ep_handle == ep);
    CHECK(data->user_cookie.as_64 == value);
    CHECK(data->status == DAT_DTO_SUCCESS);
    CHECK((unsigned)data->operation == operation);
    CHECK(data->transfered_length == length);
    CHECK(told.type == kind && told.status == DAT_OP_SUCCESS);
    return told;
}

static uint64_t number_at(const char *memory)
{
    uint64_t number;
    memcpy(&number, memory, sizeof number);
    return number;
}

static void put_number(char *memory, uint64_t number)
{
    memcpy(memory, &number, sizeof number);
}

/* Returns true if an attribute of the provider has this name. */
static int has(DAT_IA_HANDLE ia, const char *name)
{
    DAT_PROVIDER_ATTR attributes;
    int i;
    OK(dat_ia_query(ia, NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL, &attributes));
    for (i = 0; i < attributes.num_provider_specific_attr; i++)
        if (strcmp(attributes.provider_specific_attr[i].name, name) == 0)
            return strcmp(attributes.provider_specific_attr[i].value, "TRUE") == 0;
    return 0;
}

static void make_endpoint(struct side *side)
{
    OK(dat_ep_create(side->ia, side->zone, side->receives, side->requests, side->connections, NULL, &side->endpoint));
}

static void connected(void)
{
    struct side near = open_side("extended", DAT_MEM_PRIV_ALL_FLAG), far = open_side("extended", DAT_MEM_PRIV_ALL_FLAG);
    DAT_LMR_TRIPLET pieces[2], receive;
    DAT_RMR_TRIPLET remote;
    DAT_IB_EXTENSION_EVENT_DATA told;

    CHECK(has(near.ia, DAT_IB_ATTR_IMMED_DATA) && has(near.ia, DAT_IB_ATTR_FETCH_AND_ADD) && has(near.ia, DAT_IB_ATTR_CMP_AND_SWAP));
    make_endpoint(&near);
    make_endpoint(&far);
    pieces[0] = piece(&near, 0, 8);
    remote = target(&far, 64, 8);
    EXPECT_CODE(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED,
                dat_ib_post_fetch_and_add(near.endpoint, 1, pieces, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    connect_sides(&near, &far, 4711);

    /* A write of two segments, whose immediate data completes a receive of the peer. */
    memcpy(near.memory, "to be", 5);
    memcpy(near.memory + 100, " written", 8);
    receive = piece(&far, 4000, 64);
    OK(dat_ep_post_recv(far.endpoint, 1, &receive, cookie(10), DAT_COMPLETION_DEFAULT_FLAG));
    pieces[0] = piece(&near, 0, 5);
    pieces[1] = piece(&near, 100, 8);
    remote = target(&far, 1000, 13);
    OK(dat_ib_post_rdma_write_immed(near.endpoint, 2, pieces, cookie(11), &remote, 0xABCD1234, DAT_COMPLETION_DEFAULT_FLAG));
    extended(near.requests, near.endpoint, 11, DAT_IB_DTO_RDMA_WRITE_IMMED, 13, DAT_IB_RDMA_WRITE_IMMED);
    told = extended(far.receives, far.endpoint, 10, DAT_IB_DTO_RECV_IMMED, 13, DAT_IB_RDMA_WRITE_IMMED_DATA);
    CHECK(told.val.immed.data == 0xABCD1234);
    CHECK(memcmp(far.memory + 1000, "to be written", 13) == 0);
    CHECK(far.memory[4000] == 0);

    /* Each atomic operation returns the former value. */
    put_number(far.memory + 64, 40);
    pieces[0] = piece(&near, 200, 8);
    remote = target(&far, 64, 8);
    OK(dat_ib_post_fetch_and_add(near.endpoint, 2, pieces, cookie(12), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    extended(near.requests, near.endpoint, 12, DAT_IB_DTO_FETCH_ADD, 8, DAT_IB_FETCH_AND_ADD);
    CHECK(number_at(near.memory + 200) == 40 && number_at(far.memory + 64) == 42);
    OK(dat_ib_post_cmp_and_swap(near.endpoint, 41, 7, pieces, cookie(13), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    extended(near.requests, near.endpoint, 13, DAT_IB_DTO_CMP_SWAP, 8, DAT_IB_CMP_AND_SWAP);
    CHECK(number_at(near.memory + 200) == 42 && number_at(far.memory + 64) == 42);
    OK(dat_ib_post_cmp_and_swap(near.endpoint, 42, 7, pieces, cookie(14), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    extended(near.requests, near.endpoint, 14, DAT_IB_DTO_CMP_SWAP, 8, DAT_IB_CMP_AND_SWAP);
    CHECK(number_at(near.memory + 200) == 42 && number_at(far.memory + 64) == 7);

    /* Invalid operations are refused at once and change nothing. */
    remote = target(&far, 68, 8);
    EXPECT(DAT_INVALID_PARAMETER,
           dat_ib_post_fetch_and_add(near.endpoint, 1, pieces, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    remote = target(&far, 64, 8);
    pieces[0] = piece(&near, 200, 4);
    EXPECT(DAT_LENGTH_ERROR,
           dat_ib_post_cmp_and_swap(near.endpoint, 7, 8, pieces, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    pieces[0] = piece(&near, 200, 8);
    EXPECT(DAT_INVALID_PARAMETER,
           dat_ib_post_rdma_write_immed(near.endpoint, -1, pieces, cookie(1), &remote, 1, DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(DAT_INVALID_PARAMETER,
           dat_ib_post_rdma_write_immed(near.endpoint, 1, pieces, cookie(1), NULL, 1, DAT_COMPLETION_DEFAULT_FLAG));
    CHECK(number_at(far.memory + 64) == 7);
    EXPECT(DAT_NOT_IMPLEMENTED, dat_extension_op(near.endpoint, (int)DAT_IB_PRINT_COUNTERS_OP, 0, 0));

    OK(dat_ep_disconnect(near.endpoint, DAT_CLOSE_ABRUPT_FLAG));
    next_event(near.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    next_event(far.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_free(near.endpoint));
    OK(dat_ep_free(far.endpoint));
    free_side(&near);
    free_side(&far);
}

static void not_asked_for(void)
{
    struct side side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    DAT_LMR_TRIPLET local;
    DAT_RMR_TRIPLET remote;

    CHECK(!has(side.ia, DAT_IB_ATTR_IMMED_DATA) && !has(side.ia, DAT_IB_ATTR_FETCH_AND_ADD) && !has(side.ia, DAT_IB_ATTR_CMP_AND_SWAP));
    make_endpoint(&side);
    local = piece(&side, 0, 8);
    remote = target(&side, 64, 8);
    EXPECT(DAT_NOT_IMPLEMENTED,
           dat_ib_post_fetch_and_add(side.endpoint, 1, &local, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_free(side.endpoint));
    free_side(&side);
}

int main(void)
{
    connected();
    not_asked_for();
    return 0;
}
