/* Wrong handles: null, freed, of another kind, of another or closed adapter. All are refused,
 * and none crashes. Handles that no provider returned are not tested here: the packaged registry
 * follows them. */
#include "check.h"

#include <netinet/in.h>

#ifdef EDITION_1_2
#define NO_MEMORY DAT_INVALID_PARAMETER
#else
#define NO_MEMORY DAT_LENGTH_ERROR
#endif

/* Calls on a handle of one kind, with valid other arguments. */
static DAT_RETURN on_pz(DAT_HANDLE handle)
{
    DAT_PZ_PARAM param;
    DAT_RMR_HANDLE rmr;
    DAT_RETURN first = dat_pz_query(handle, DAT_PZ_FIELD_ALL, &param);
    CHECK(dat_rmr_create(handle, &rmr) == first);
    CHECK(dat_pz_free(handle) == first);
    return first;
}

static DAT_RETURN on_lmr(DAT_HANDLE handle)
{
    DAT_LMR_PARAM param;
    DAT_RETURN first = dat_lmr_query(handle, DAT_LMR_FIELD_ALL, &param);
    CHECK(dat_lmr_free(handle) == first);
    return first;
}

static DAT_RETURN on_rmr(DAT_HANDLE handle)
{
    DAT_RMR_PARAM param;
    DAT_RETURN first = dat_rmr_query(handle, DAT_RMR_FIELD_ALL, &param);
    CHECK(dat_rmr_free(handle) == first);
    return first;
}

static DAT_RETURN on_cno(DAT_HANDLE handle)
{
    DAT_CNO_PARAM param;
    DAT_EVD_HANDLE evd;
    DAT_RETURN first = dat_cno_query(handle, DAT_CNO_FIELD_ALL, &param);
    CHECK(dat_cno_modify_agent(handle, DAT_OS_WAIT_PROXY_AGENT_NULL) == first);
    CHECK(dat_cno_wait(handle, 0, &evd) == first);
    CHECK(dat_cno_free(handle) == first);
    return first;
}

static DAT_RETURN on_evd(DAT_HANDLE handle)
{
    DAT_EVD_PARAM param;
    DAT_EVENT event;
    DAT_COUNT more;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    EXPECT(DAT_INVALID_HANDLE, dat_evd_query(handle, DAT_EVD_FIELD_ALL, &param));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_modify_cno(handle, DAT_HANDLE_NULL));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_enable(handle));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_disable(handle));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_set_unwaitable(handle));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_clear_unwaitable(handle));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_resize(handle, 4));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_post_se(handle, &event));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_dequeue(handle, &event));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_wait(handle, 0, 1, &event, &more));
    return dat_evd_free(handle);
}

static DAT_RETURN on_ep(DAT_HANDLE handle)
{
    DAT_EP_PARAM param;
    DAT_EP_STATE state;
    DAT_BOOLEAN one, other;
    DAT_COUNT buffers, span;
    DAT_RMR_TRIPLET remote;
    struct sockaddr_in address;
    memset(&param, 0, sizeof param);
    memset(&remote, 0, sizeof remote);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    DAT_RETURN first = dat_ep_query(handle, DAT_EP_FIELD_ALL, &param);
    CHECK(dat_ep_modify(handle, 0, &param) == first);
    CHECK(dat_ep_connect(handle, (struct sockaddr *)&address, 1, SECOND, 0, NULL, DAT_QOS_BEST_EFFORT, 0) == first);
    CHECK(dat_ep_dup_connect(handle, handle, SECOND, 0, NULL, DAT_QOS_BEST_EFFORT) == first);
    CHECK(dat_ep_disconnect(handle, DAT_CLOSE_ABRUPT_FLAG) == first);
    CHECK(dat_ep_post_send(handle, 0, NULL, cookie(0), 0) == first);
    CHECK(dat_ep_post_recv(handle, 0, NULL, cookie(0), 0) == first);
    CHECK(dat_ep_post_rdma_write(handle, 0, NULL, cookie(0), &remote, 0) == first);
    CHECK(dat_ep_post_rdma_read(handle, 0, NULL, cookie(0), &remote, 0) == first);
    CHECK(dat_ep_get_status(handle, &state, &one, &other) == first);
    CHECK(dat_ep_recv_query(handle, &buffers, &span) == first);
    CHECK(dat_ep_set_watermark(handle, 1, 1) == first);
    CHECK(dat_ep_reset(handle) == first);
    CHECK(dat_ep_free(handle) == first);
    return first;
}

static DAT_RETURN on_srq(DAT_HANDLE handle)
{
    DAT_SRQ_PARAM param;
    DAT_RETURN first = dat_srq_query(handle, DAT_SRQ_FIELD_ALL, &param);
    CHECK(dat_srq_post_recv(handle, 0, NULL, cookie(0)) == first);
    CHECK(dat_srq_resize(handle, 4) == first);
    CHECK(dat_srq_set_lw(handle, 1) == first);
    CHECK(dat_srq_free(handle) == first);
    return first;
}

static DAT_RETURN on_psp(DAT_HANDLE handle)
{
    DAT_PSP_PARAM param;
    DAT_RETURN first = dat_psp_query(handle, DAT_PSP_FIELD_ALL, &param);
    CHECK(dat_psp_free(handle) == first);
    return first;
}

static DAT_RETURN on_rsp(DAT_HANDLE handle)
{
    DAT_RSP_PARAM param;
    DAT_RETURN first = dat_rsp_query(handle, DAT_RSP_FIELD_ALL, &param);
    CHECK(dat_rsp_free(handle) == first);
    return first;
}

static DAT_RETURN on_cr(DAT_HANDLE handle)
{
    DAT_CR_PARAM param;
    DAT_RETURN first = dat_cr_query(handle, DAT_CR_FIELD_ALL, &param);
    CHECK(dat_cr_accept(handle, DAT_HANDLE_NULL, 0, NULL) == first);
    CHECK(dat_cr_reject(handle, 0, NULL) == first);
    CHECK(dat_cr_handoff(handle, 7) == first);
    return first;
}

enum { PZ, LMR, RMR, CNO, EVD, EP, SRQ, PSP, RSP, KINDS };

static const struct {
    DAT_RETURN (*calls)(DAT_HANDLE);
    DAT_RETURN_SUBTYPE subtype;
    DAT_HANDLE_TYPE type;
} kinds[KINDS] = {
    [PZ] = {on_pz, DAT_INVALID_HANDLE_PZ, DAT_HANDLE_TYPE_PZ},
    [LMR] = {on_lmr, DAT_INVALID_HANDLE_LMR, DAT_HANDLE_TYPE_LMR},
    [RMR] = {on_rmr, DAT_INVALID_HANDLE_RMR, DAT_HANDLE_TYPE_RMR},
    [CNO] = {on_cno, DAT_INVALID_HANDLE_CNO, DAT_HANDLE_TYPE_CNO},
    [EVD] = {on_evd, DAT_INVALID_HANDLE1, DAT_HANDLE_TYPE_EVD},
    [EP] = {on_ep, DAT_INVALID_HANDLE_EP, DAT_HANDLE_TYPE_EP},
    [SRQ] = {on_srq, DAT_INVALID_HANDLE_SRQ, DAT_HANDLE_TYPE_SRQ},
    [PSP] = {on_psp, DAT_INVALID_HANDLE_PSP, DAT_HANDLE_TYPE_PSP},
    [RSP] = {on_rsp, DAT_INVALID_HANDLE_RSP, DAT_HANDLE_TYPE_RSP},
};

static void make(struct side *side, DAT_HANDLE made[KINDS], DAT_CONN_QUAL qualifier)
{
    DAT_SRQ_ATTR attributes = {8, 1, 0};
    made[PZ] = side->zone;
    made[LMR] = side->region;
    OK(dat_rmr_create(side->zone, &made[RMR]));
    OK(dat_cno_create(side->ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &made[CNO]));
    OK(dat_evd_create(side->ia, 4, made[CNO], DAT_EVD_SOFTWARE_FLAG, &made[EVD]));
    OK(dat_ep_create(side->ia, side->zone, side->receives, side->requests, side->connections, NULL, &made[EP]));
    OK(dat_srq_create(side->ia, side->zone, &attributes, &made[SRQ]));
    OK(dat_psp_create(side->ia, qualifier, side->arrivals, DAT_PSP_CONSUMER_FLAG, &made[PSP]));
    OK(dat_rsp_create(side->ia, qualifier + 1, made[EP], side->arrivals, &made[RSP]));
}

int main(void)
{
    struct side side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG), other = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    DAT_HANDLE made[KINDS], closed[KINDS], pz;
    DAT_HANDLE_TYPE type;
    DAT_CONTEXT context;
    DAT_REGION_DESCRIPTION description;
    DAT_LMR_HANDLE lmr = NULL;
    DAT_EVD_HANDLE evd = NULL;
    DAT_EP_HANDLE ep = NULL;
    DAT_PZ_PARAM pz_param;
    DAT_EVD_PARAM evd_param;
    DAT_CNO_PARAM cno_param;
    DAT_PSP_PARAM psp_param;
    DAT_RSP_PARAM rsp_param;
    DAT_SRQ_PARAM srq_param;
    DAT_LMR_PARAM lmr_param;
    DAT_COUNT more;
    DAT_EVENT event;
    int kind, call, round;

    make(&side, made, 100);
    for (kind = 0; kind < KINDS; kind++) {
        OK(dat_get_handle_type(made[kind], &type));
        CHECK(type == kinds[kind].type);
        context.as_64 = 1000 + kind;
        OK(dat_set_consumer_context(made[kind], context));
    }
    for (kind = 0; kind < KINDS; kind++) {
        OK(dat_get_consumer_context(made[kind], &context));
        CHECK(context.as_64 == (DAT_UINT64)(1000 + kind));
    }

    /* Queries return handles that the consumer has. */
    OK(dat_pz_query(made[PZ], DAT_PZ_FIELD_ALL, &pz_param));
    CHECK(pz_param.ia_handle == side.ia);
    OK(dat_evd_query(made[EVD], DAT_EVD_FIELD_ALL, &evd_param));
    CHECK(evd_param.ia_handle == side.ia && evd_param.cno_handle == made[CNO] && evd_param.evd_qlen >= 4);
    CHECK(evd_param.evd_flags == DAT_EVD_SOFTWARE_FLAG && evd_param.evd_state & DAT_EVD_STATE_ENABLED);
    OK(dat_cno_query(made[CNO], DAT_CNO_FIELD_ALL, &cno_param));
    CHECK(cno_param.ia_handle == side.ia);
#ifndef EDITION_1_2
    CHECK(cno_param.proxy_type == DAT_PROXY_TYPE_NONE);
#endif
    OK(dat_psp_query(made[PSP], DAT_PSP_FIELD_ALL, &psp_param));
    CHECK(psp_param.conn_qual == 100 && psp_param.evd_handle == side.arrivals && psp_param.ia_handle == side.ia);
    OK(dat_rsp_query(made[RSP], DAT_RSP_FIELD_ALL, &rsp_param));
    CHECK(rsp_param.conn_qual == 101 && rsp_param.ep_handle == made[EP] && rsp_param.ia_handle == side.ia);
    OK(dat_srq_query(made[SRQ], DAT_SRQ_FIELD_ALL, &srq_param));
    CHECK(srq_param.srq_state == DAT_SRQ_STATE_OPERATIONAL && srq_param.pz_handle == side.zone && srq_param.ia_handle == side.ia);
    OK(dat_lmr_query(made[LMR], DAT_LMR_FIELD_ALL, &lmr_param));
    CHECK(lmr_param.lmr_context == side.local && lmr_param.rmr_context == side.remote && lmr_param.length == BYTES);
    CHECK(lmr_param.region_desc.for_va == side.memory && lmr_param.pz_handle == side.zone && lmr_param.ia_handle == side.ia);
    EXPECT(DAT_INVALID_PARAMETER, dat_pz_query(made[PZ], (DAT_PZ_PARAM_MASK)2, &pz_param));
    EXPECT(DAT_INVALID_PARAMETER, dat_pz_query(made[PZ], DAT_PZ_FIELD_ALL, NULL));

    /* Null, and every kind of handle in every call for another kind. */
    for (kind = 0; kind < KINDS; kind++) {
        for (call = 0; call < KINDS; call++) {
            if (kind != call) {
                EXPECT(DAT_INVALID_HANDLE, kinds[call].calls(made[kind]));
            }
        }
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR, on_cr(made[kind]));
    }
    EXPECT(DAT_INVALID_HANDLE, on_pz(DAT_HANDLE_NULL));
    EXPECT(DAT_INVALID_HANDLE, on_ep(DAT_HANDLE_NULL));
    EXPECT(DAT_INVALID_HANDLE, on_srq(DAT_HANDLE_NULL));
    EXPECT(DAT_INVALID_HANDLE, on_evd(DAT_HANDLE_NULL));

    /* In other arguments: of another kind, of another adapter, and any number, because none is
     * followed. */
    description.for_va = side.memory;
    for (round = 0; round < 4; round++) {
        pz = round == 0 ? other.zone : round == 1 ? made[EP] : round == 2 ? (DAT_PZ_HANDLE)1 : (DAT_PZ_HANDLE)0xDEAD0BEEF8;
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ,
                    dat_lmr_create(side.ia, DAT_MEM_TYPE_VIRTUAL, description, 64, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA,
                                   &lmr, NULL, NULL, NULL, NULL));
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ,
                    dat_ep_create(side.ia, pz, side.receives, side.requests, side.connections, NULL, &ep));
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO, dat_evd_create(side.ia, 4, pz, DAT_EVD_SOFTWARE_FLAG, &evd));
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_RECV,
                    dat_ep_create(side.ia, side.zone, pz, side.requests, side.connections, NULL, &ep));
    }
    CHECK(lmr == NULL && ep == NULL && evd == NULL);
    EXPECT(DAT_INVALID_PARAMETER, dat_evd_create(side.ia, 4, NULL, (DAT_EVD_FLAGS)0x4000, &evd));
    EXPECT(DAT_INVALID_PARAMETER, dat_evd_create(side.ia, 4, NULL, DAT_EVD_SOFTWARE_FLAG, NULL));
    EXPECT(NO_MEMORY, dat_lmr_create(side.ia, DAT_MEM_TYPE_VIRTUAL, description, 0, side.zone, DAT_MEM_PRIV_ALL_FLAG,
                                            DAT_VA_TYPE_VA, &lmr, NULL, NULL, NULL, NULL));
    description.for_va = (DAT_PVOID)(uintptr_t)64;
    EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3,
                dat_lmr_create(side.ia, DAT_MEM_TYPE_VIRTUAL, description, 64, side.zone, DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_VA_TYPE_VA,
                               &lmr, NULL, NULL, NULL, NULL));
    description.for_va = side.memory;
    EXPECT(DAT_INVALID_PARAMETER, dat_lmr_create(side.ia, (DAT_MEM_TYPE)9, description, 64, side.zone, DAT_MEM_PRIV_ALL_FLAG,
                                                 DAT_VA_TYPE_VA, &lmr, NULL, NULL, NULL, NULL));
    EXPECT(DAT_INVALID_HANDLE, dat_pz_create(DAT_HANDLE_NULL, &pz));

    /* Memory is synchronised for an adapter; on this one the calls only check their arguments. */
    {
        DAT_LMR_TRIPLET pieces[2] = {piece(&side, 0, 64), piece(&side, 128, 64)};
        OK(dat_lmr_sync_rdma_write(side.ia, pieces, 2));
        OK(dat_lmr_sync_rdma_read(side.ia, pieces, 2));
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_lmr_sync_rdma_write((DAT_IA_HANDLE)77, pieces, 2));
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_lmr_sync_rdma_write(DAT_HANDLE_NULL, pieces, 2));
        EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_lmr_sync_rdma_write(side.ia, NULL, 2));
        EXPECT(DAT_INVALID_PARAMETER, dat_lmr_sync_rdma_write(side.ia, pieces, (DAT_VLEN)-1));
        pieces[1] = piece(&side, BYTES, 64);
        EXPECT(DAT_INVALID_PARAMETER, dat_lmr_sync_rdma_write(side.ia, pieces, 2));
        EXPECT(DAT_INVALID_PARAMETER, dat_lmr_sync_rdma_read(side.ia, pieces, 2));
    }

    /* Freed handles; objects in use cannot be freed first. */
    EXPECT(DAT_INVALID_STATE, dat_pz_free(made[PZ]));
    EXPECT(DAT_INVALID_STATE, dat_cno_free(made[CNO]));
    EXPECT(DAT_INVALID_STATE, dat_ia_close(side.ia, DAT_CLOSE_GRACEFUL_FLAG));
    OK(dat_rsp_free(made[RSP]));
    OK(dat_psp_free(made[PSP]));
    OK(dat_ep_free(made[EP]));
    OK(dat_srq_free(made[SRQ]));
    OK(dat_evd_free(made[EVD]));
    OK(dat_cno_free(made[CNO]));
    OK(dat_rmr_free(made[RMR]));
    free_side(&side);
    for (kind = 0; kind < KINDS; kind++) {
        EXPECT_CODE(DAT_INVALID_HANDLE, kinds[kind].subtype, kinds[kind].calls(made[kind]));
        EXPECT(DAT_INVALID_HANDLE, dat_get_handle_type(made[kind], &type));
    }

    /* Handles of a closed adapter with open objects, also after another adapter has as many
     * objects. */
    make(&other, closed, 200);
    OK(dat_ia_close(other.ia, DAT_CLOSE_ABRUPT_FLAG));
    EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_lmr_sync_rdma_write(other.ia, NULL, 0));
    for (round = 0; round < 20; round++) {
        side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
        make(&side, made, 300);
        for (kind = 0; kind < KINDS; kind++) {
            CHECK(made[kind] != closed[kind]);
            EXPECT(DAT_INVALID_HANDLE, kinds[kind].calls(closed[kind]));
        }
        EXPECT(DAT_INVALID_HANDLE, dat_evd_wait(other.async, 0, 1, &event, &more));
        OK(dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG));
    }
    return 0;
}
