/* Any value for any handle, in every argument: the registry of this project refuses it and
 * follows none. */
#include "check.h"

#include <netinet/in.h>
#include <sys/mman.h>

#ifdef EDITION_1_2
#include <dat/dat_registry.h>
#else
extern DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE, DAT_IA_HANDLE *);
extern DAT_RETURN dat_extension_op(DAT_HANDLE, DAT_EXTENDED_OP, ...);
#endif

static struct side side;
static DAT_LMR_TRIPLET lmr_piece;
static DAT_RMR_TRIPLET rmr_piece;

#ifdef EDITION_1_2
#define NULL_EVD DAT_INVALID_HANDLE1
#else
#define NULL_EVD DAT_INVALID_HANDLE_EVD_REQUEST
#endif

#define REFUSED(call) EXPECT(DAT_INVALID_HANDLE, call)

/* Makes all calls with the handle as their first argument. */
static void as_first(DAT_HANDLE h)
{
    static char room[1024];
    DAT_EVENT event;
    DAT_COUNT one, two;
    DAT_HANDLE made = NULL;
    DAT_CONTEXT context = {0};
    DAT_HANDLE_TYPE type;
    DAT_EP_STATE state;
    DAT_BOOLEAN idle;
    DAT_CONN_QUAL qualifier;
    DAT_REGION_DESCRIPTION description;
    DAT_RMR_CONTEXT remote;
    struct sockaddr_in address;
    DAT_SRQ_ATTR queue = {8, 1, 0};
    DAT_OS_WAIT_PROXY_AGENT none = DAT_OS_WAIT_PROXY_AGENT_NULL;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    description.for_va = room;
    REFUSED(dat_ia_query(h, &made, 0, NULL, 0, NULL));
    REFUSED(dat_ia_close(h, DAT_CLOSE_ABRUPT_FLAG));
    REFUSED(dat_set_consumer_context(h, context));
    REFUSED(dat_get_consumer_context(h, &context));
    REFUSED(dat_get_handle_type(h, &type));
#ifndef EDITION_1_2
    REFUSED(dat_extension_op(h, (DAT_EXTENDED_OP)0, 1, 2));
    REFUSED(dats_get_ia_handle(h, &made));
#endif
    REFUSED(dat_cno_create(h, none, &made));
    REFUSED(dat_cno_modify_agent(h, none));
    REFUSED(dat_cno_query(h, 1, (void *)room));
    REFUSED(dat_cno_free(h));
    REFUSED(dat_cno_wait(h, 0, &made));
    REFUSED(dat_cr_query(h, 1, (void *)room));
    REFUSED(dat_cr_accept(h, NULL, 0, NULL));
    REFUSED(dat_cr_reject(h, 0, NULL));
    REFUSED(dat_cr_handoff(h, 1));
    REFUSED(dat_evd_create(h, 1, NULL, DAT_EVD_SOFTWARE_FLAG, &made));
    REFUSED(dat_evd_query(h, 1, (void *)room));
    REFUSED(dat_evd_modify_cno(h, NULL));
    REFUSED(dat_evd_enable(h));
    REFUSED(dat_evd_disable(h));
    REFUSED(dat_evd_wait(h, 0, 1, &event, &one));
    REFUSED(dat_evd_resize(h, 2));
    REFUSED(dat_evd_post_se(h, (void *)room));
    REFUSED(dat_evd_dequeue(h, &event));
    REFUSED(dat_evd_free(h));
    REFUSED(dat_evd_set_unwaitable(h));
    REFUSED(dat_evd_clear_unwaitable(h));
    REFUSED(dat_ep_create(h, NULL, NULL, NULL, NULL, NULL, &made));
    REFUSED(dat_ep_create_with_srq(h, side.zone, NULL, NULL, NULL, side.zone, NULL, &made));
    REFUSED(dat_ep_query(h, 1, (void *)room));
    REFUSED(dat_ep_modify(h, 0, (void *)room));
    REFUSED(dat_ep_connect(h, (struct sockaddr *)&address, 1, 1, 0, NULL, 0, 0));
    REFUSED(dat_ep_dup_connect(h, h, 1, 0, NULL, 0));
    REFUSED(dat_ep_disconnect(h, DAT_CLOSE_ABRUPT_FLAG));
    REFUSED(dat_ep_post_send(h, 1, &lmr_piece, context, 0));
    REFUSED(dat_ep_post_recv(h, 1, &lmr_piece, context, 0));
    REFUSED(dat_ep_post_rdma_read(h, 1, &lmr_piece, context, &rmr_piece, 0));
    REFUSED(dat_ep_post_rdma_write(h, 1, &lmr_piece, context, &rmr_piece, 0));
    REFUSED(dat_ep_get_status(h, &state, &idle, &idle));
    REFUSED(dat_ep_free(h));
    REFUSED(dat_ep_reset(h));
    REFUSED(dat_ep_recv_query(h, &one, &two));
    REFUSED(dat_ep_set_watermark(h, 1, 1));
    REFUSED(dat_lmr_create(h, DAT_MEM_TYPE_VIRTUAL, description, 64, side.zone, 0, DAT_VA_TYPE_VA, &made, NULL, NULL, NULL, NULL));
    REFUSED(dat_lmr_query(h, 1, (void *)room));
    REFUSED(dat_lmr_free(h));
    REFUSED(dat_lmr_sync_rdma_read(h, &lmr_piece, 1));
    REFUSED(dat_lmr_sync_rdma_write(h, &lmr_piece, 1));
    REFUSED(dat_rmr_create(h, &made));
    REFUSED(dat_rmr_query(h, 1, (void *)room));
    REFUSED(dat_rmr_bind(h, side.region, &lmr_piece, 0, DAT_VA_TYPE_VA, side.endpoint, context, 0, &remote));
    REFUSED(dat_rmr_free(h));
    REFUSED(dat_psp_create(h, 7, side.arrivals, DAT_PSP_CONSUMER_FLAG, &made));
    REFUSED(dat_psp_create_any(h, &qualifier, side.arrivals, DAT_PSP_CONSUMER_FLAG, &made));
    REFUSED(dat_psp_query(h, 1, (void *)room));
    REFUSED(dat_psp_free(h));
    REFUSED(dat_rsp_create(h, 7, side.endpoint, side.arrivals, &made));
    REFUSED(dat_rsp_query(h, 1, (void *)room));
    REFUSED(dat_rsp_free(h));
    REFUSED(dat_pz_create(h, &made));
    REFUSED(dat_pz_query(h, 1, (void *)room));
    REFUSED(dat_pz_free(h));
    REFUSED(dat_srq_create(h, side.zone, &queue, &made));
    REFUSED(dat_srq_free(h));
    REFUSED(dat_srq_post_recv(h, 1, &lmr_piece, context));
    REFUSED(dat_srq_query(h, 1, (void *)room));
    REFUSED(dat_srq_resize(h, 8));
    REFUSED(dat_srq_set_lw(h, 1));
    CHECK(made == NULL);
}

/* Passes the handle in all other arguments. */
static void beside(DAT_HANDLE h)
{
    DAT_HANDLE made = NULL, ia = NULL;
    DAT_CONTEXT context = {0};
    DAT_CONN_QUAL qualifier;
    DAT_REGION_DESCRIPTION description;
    DAT_RMR_CONTEXT remote;
    DAT_EP_PARAM param;
    DAT_EP_HANDLE ep = side.endpoint;
    DAT_RMR_HANDLE rmr;
    DAT_SRQ_HANDLE srq;
    DAT_SRQ_ATTR queue = {8, 1, 0};
    DAT_HANDLE async = h;
    description.for_va = side.memory;
    OK(dat_rmr_create(side.zone, &rmr));
    OK(dat_srq_create(side.ia, side.zone, &queue, &srq));
    REFUSED(dat_evd_create(side.ia, 1, h, DAT_EVD_SOFTWARE_FLAG, &made));
    REFUSED(dat_evd_modify_cno(side.arrivals, h));
    REFUSED(dat_ep_create(side.ia, h, side.receives, side.requests, side.connections, NULL, &made));
    REFUSED(dat_ep_create(side.ia, side.zone, h, side.requests, side.connections, NULL, &made));
    REFUSED(dat_ep_create(side.ia, side.zone, side.receives, h, side.connections, NULL, &made));
    REFUSED(dat_ep_create(side.ia, side.zone, side.receives, side.requests, h, NULL, &made));
    OK(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
    REFUSED(dat_ep_create_with_srq(side.ia, h, side.receives, side.requests, side.connections, srq, &param.ep_attr, &made));
    REFUSED(dat_ep_create_with_srq(side.ia, side.zone, side.receives, side.requests, h, srq, &param.ep_attr, &made));
    REFUSED(dat_ep_create_with_srq(side.ia, side.zone, side.receives, side.requests, side.connections, h, &param.ep_attr, &made));
    REFUSED(dat_ep_dup_connect(ep, h, 1, 0, NULL, 0));
    REFUSED(dat_lmr_create(side.ia, DAT_MEM_TYPE_VIRTUAL, description, 64, h, 0, DAT_VA_TYPE_VA, &made, NULL, NULL, NULL, NULL));
    description.for_lmr_handle = h;
    REFUSED(dat_lmr_create(side.ia, DAT_MEM_TYPE_LMR, description, 64, side.zone, 0, DAT_VA_TYPE_VA, &made, NULL, NULL, NULL, NULL));
#ifndef EDITION_1_2
    REFUSED(dat_rmr_bind(rmr, h, &lmr_piece, 0, DAT_VA_TYPE_VA, ep, context, 0, &remote));
#endif
    REFUSED(dat_rmr_bind(rmr, side.region, &lmr_piece, 0, DAT_VA_TYPE_VA, h, context, 0, &remote));
    REFUSED(dat_psp_create(side.ia, 7, h, DAT_PSP_CONSUMER_FLAG, &made));
    REFUSED(dat_psp_create_any(side.ia, &qualifier, h, DAT_PSP_CONSUMER_FLAG, &made));
    REFUSED(dat_rsp_create(side.ia, 7, h, side.arrivals, &made));
    REFUSED(dat_rsp_create(side.ia, 7, ep, h, &made));
    REFUSED(dat_srq_create(side.ia, h, &queue, &made));
    memset(&param, 0, sizeof param);
    param.pz_handle = h;
    param.recv_evd_handle = h;
    param.request_evd_handle = h;
    param.connect_evd_handle = h;
    param.srq_handle = h;
    REFUSED(dat_ep_modify(ep, DAT_EP_FIELD_PZ_HANDLE, &param));
    REFUSED(dat_ep_modify(ep, DAT_EP_FIELD_RECV_EVD_HANDLE, &param));
    REFUSED(dat_ep_modify(ep, DAT_EP_FIELD_REQUEST_EVD_HANDLE, &param));
    REFUSED(dat_ep_modify(ep, DAT_EP_FIELD_CONNECT_EVD_HANDLE, &param));
#ifdef EDITION_1_2
    EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_ep_modify(ep, DAT_EP_FIELD_SRQ_HANDLE, &param));
#else
    REFUSED(dat_ep_modify(ep, DAT_EP_FIELD_SRQ_HANDLE, &param));
#endif
    if (h != (DAT_HANDLE)1 && h != (DAT_HANDLE)2) {
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_ASYNC, dat_ia_open("mock0", 8, &async, &ia));
        CHECK(async == h && ia == NULL);
    }
    CHECK(made == NULL);
    OK(dat_rmr_free(rmr));
    OK(dat_srq_free(srq));
}

int main(void)
{
    static char memory[4096];
    struct side closed = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    DAT_PZ_HANDLE freed;
#ifdef EDITION_1_2
    /* With another provider registered, the library reads the word at each handle. */
    static DAT_PROVIDER table;
    static DAT_PROVIDER_INFO info = {"other", 1, 2, DAT_FALSE};
#else
    DAT_IA_HANDLE own;
#endif
    unsigned long state = 0x5eed;
    unsigned index;
    void *gap = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#ifdef EDITION_1_2
    OK(dat_registry_add_provider(&table, &info));
#endif
    OK(dat_ep_create(closed.ia, closed.zone, closed.receives, closed.requests, closed.connections, NULL, &closed.endpoint));
    OK(dat_ia_close(closed.ia, DAT_CLOSE_ABRUPT_FLAG));
    side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_ep_create(side.ia, side.zone, side.receives, side.requests, side.connections, NULL, &side.endpoint));
    lmr_piece = piece(&side, 0, 64);
    OK(dat_pz_create(side.ia, &freed));
    OK(dat_pz_free(freed));
    memset(memory, 0x11, sizeof memory);
    void *values[] = {
        (void *)3, (void *)8, (void *)1000, (void *)65535, (void *)65536, (void *)0x20001, memory, memory + 1, memory + 4, gap, &index,
        (void *)0x7FFFFFFFFFF8, (void *)0x800000000000, (void *)-1L, (void *)-8L, (void *)main, freed, (char *)side.zone + 8,
        (char *)side.endpoint + 32, closed.zone, closed.endpoint, closed.requests, closed.async, closed.ia,
    };
    for (index = 0; index < sizeof values / sizeof *values; index++) {
        as_first(values[index]);
        beside(values[index]);
    }
    as_first(DAT_HANDLE_NULL);
    for (index = 0; index < 300; index++) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        as_first((void *)(state >> (index % 40)));
        beside((void *)(state >> (index % 40)));
    }

    /* Wrong kinds: the adapter's number in place of an object, its own handle in place of a
     * number. */
    beside(side.ia);
#ifndef EDITION_1_2
    OK(dats_get_ia_handle(side.ia, &own));
#endif
    {
        DAT_CNO_PARAM cno;
        DAT_EVD_PARAM evd;
        DAT_PZ_HANDLE pz = NULL;
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO, dat_cno_query(side.ia, DAT_CNO_FIELD_ALL, &cno));
        EXPECT(DAT_INVALID_HANDLE, dat_evd_query(side.ia, DAT_EVD_FIELD_ALL, &evd));
#ifndef EDITION_1_2
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_pz_create(own, &pz));
#endif
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_pz_create(side.zone, &pz));
        EXPECT_CODE(DAT_INVALID_HANDLE, NULL_EVD, dat_evd_query(NULL, DAT_EVD_FIELD_ALL, &evd));
    }

    /* All objects still work. */
    OK(dat_ep_free(side.endpoint));
    free_side(&side);
    return 0;
}
