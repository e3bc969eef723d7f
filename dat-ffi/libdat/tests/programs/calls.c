/* Every call of DAT 1.2 succeeds once and is refused once, with the code in its manual page. */
#include "each.h"

#undef dat_lmr_create
#undef dat_rmr_bind
#undef dat_cr_reject

#include <dat/dat_registry.h>
#include <netinet/in.h>

static struct side near, far;
static DAT_IA_ATTR adapter;

/* GEN-01, STR-01..03, REGL-01..05, REGA-02, REGR-01 */
static void the_registry(void)
{
    static DAT_PROVIDER table;
    DAT_PROVIDER_INFO info, *list[4] = {&info, NULL, NULL, NULL}, own;
    DAT_COUNT count = -7;
    const char *major = NULL, *minor = NULL;
    GOOD(dat_registry_list_providers, 1, &count, list);
    CHECK(count == 1 && info.dapl_version_major == 1 && info.dapl_version_minor == 2 && info.is_thread_safe <= DAT_TRUE);
    count = -7;
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1, dat_registry_list_providers, 0, &count, list);
    CHECK(count >= 1);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1, dat_registry_list_providers, -1, &count, list);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_registry_list_providers, 1, NULL, list);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_registry_list_providers, 1, &count, NULL);

    GOOD(dat_strerror, DAT_SUCCESS, &major, &minor);
    CHECK(major && minor && *major && *minor);
    GOOD(dat_strerror, DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE), &major, NULL);
    major = NULL;
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1, dat_strerror, 0x8FFE0000, &major, &minor);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_strerror, DAT_SUCCESS, NULL, &minor);
    CHECK(major == NULL);

    memset(&own, 0, sizeof own);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_registry_add_provider, &table, &own);
    strcpy(own.ia_name, "own0");
    own.dapl_version_major = 2;
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_registry_add_provider, &table, &own);
    own.dapl_version_major = 1;
    own.dapl_version_minor = 2;
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1, dat_registry_add_provider, NULL, &own);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_registry_add_provider, &table, NULL);
    GOOD(dat_registry_add_provider, &table, &own);
    BAD(DAT_PROVIDER_ALREADY_REGISTERED, DAT_NO_SUBTYPE, dat_registry_add_provider, &table, &own);
    GOOD(dat_registry_remove_provider, &table, &own);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_registry_remove_provider, &table, &own);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1, dat_registry_remove_provider, NULL, &own);
}

/* IAO-02, IAO-06, REGL-05, IAQ-01, IAQ-02, IAQ-10, IAC-01, IAC-02, IAC-06, CTX-01..04, HTY-01 */
static void adapters(void)
{
    char longer[300];
    DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, other = DAT_HANDLE_NULL;
    DAT_PROVIDER_ATTR provider;
    DAT_PZ_HANDLE zone;
    DAT_HANDLE_TYPE type;
    DAT_CONTEXT context;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    BAD(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, dat_ia_openv, "nobody", 8, &async, &ia, 1, 2, DAT_FALSE);
    BAD(DAT_PROVIDER_NOT_FOUND, DAT_MAJOR_NOT_FOUND, dat_ia_openv, "mock0", 8, &async, &ia, 2, 0, DAT_FALSE);
    BAD(DAT_PROVIDER_NOT_FOUND, DAT_MINOR_NOT_FOUND, dat_ia_openv, "mock0", 8, &async, &ia, 1, 3, DAT_FALSE);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1, dat_ia_openv, NULL, 8, &async, &ia, 1, 2, DAT_FALSE);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1, dat_ia_openv, longer, 8, &async, &ia, 1, 2, DAT_FALSE);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_ia_openv, "mock0", 0, &async, &ia, 1, 2, DAT_FALSE);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_ia_openv, "mock0", 8, NULL, &ia, 1, 2, DAT_FALSE);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4, dat_ia_openv, "mock0", 8, &async, NULL, 1, 2, DAT_FALSE);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG7, dat_ia_openv, "mock0", 8, &async, &ia, 1, 2, (DAT_BOOLEAN)2);
    CHECK(async == DAT_HANDLE_NULL && ia == DAT_HANDLE_NULL);
    GOOD(dat_ia_openv, "mock0", 8, &async, &ia, 1, 0, DAT_TRUE);
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    async = DAT_HANDLE_NULL;
    OK(dat_ia_open("mock0", 8, &async, &ia));
    CHECK(async != DAT_HANDLE_NULL);

    memset(&adapter, 0xAA, sizeof adapter);
    memset(&provider, 0xAA, sizeof provider);
    GOOD(dat_ia_query, ia, &other, DAT_IA_FIELD_ALL, &adapter, DAT_PROVIDER_FIELD_ALL, &provider);
    CHECK(other == async && adapter.ia_address_ptr->sa_family == AF_INET && adapter.adapter_name[0]);
    CHECK(adapter.max_eps > 0 && adapter.max_srqs > 0 && adapter.max_rmrs > 0 && adapter.max_lmr_block_size >= 1u << 30);
    CHECK(adapter.max_iov_segments_per_rdma_read > 0 && adapter.max_rdma_read_per_ep_in_guaranteed <= DAT_TRUE);
    CHECK(adapter.num_transport_attr == 0 && adapter.num_vendor_attr == 0);
    CHECK(provider.dapl_version_major == 1 && provider.dapl_version_minor == 2 && !provider.is_thread_safe);
    CHECK(provider.max_private_data_size >= 64 && provider.srq_supported && provider.pz_support == DAT_PZ_SHAREABLE);
    CHECK(provider.lmr_mem_types_supported == (DAT_MEM_TYPE_LMR | DAT_MEM_TYPE_SHARED_VIRTUAL));
    CHECK((provider.completion_flags_supported & 0x0F) == 0x0F && provider.lmr_sync_req <= DAT_TRUE);
    CHECK(provider.optimal_buffer_alignment && DAT_OPTIMAL_ALIGNMENT % provider.optimal_buffer_alignment == 0);
    CHECK(provider.evd_stream_merging_supported[5][5] == DAT_TRUE && provider.num_provider_specific_attr == 0);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_ia_query, ia, NULL, DAT_IA_FIELD_ALL + 1, &adapter, 0, NULL);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG5, dat_ia_query, ia, NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL + 1, &provider);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4, dat_ia_query, ia, NULL, DAT_IA_FIELD_ALL, NULL, 0, NULL);

    context.as_64 = 77;
    GOOD(dat_set_consumer_context, ia, context);
    context.as_64 = 0;
    GOOD(dat_get_consumer_context, ia, &context);
    CHECK(context.as_64 == 77);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1, dat_set_consumer_context, DAT_HANDLE_NULL, context);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1, dat_get_consumer_context, DAT_HANDLE_NULL, &context);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_get_consumer_context, ia, NULL);
    GOOD(dat_get_handle_type, async, &type);
    CHECK(type == DAT_HANDLE_TYPE_EVD);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1, dat_get_handle_type, DAT_HANDLE_NULL, &type);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_get_handle_type, ia, NULL);

    OK(dat_pz_create(ia, &zone));
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE, dat_ia_close, ia, DAT_CLOSE_GRACEFUL_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_ia_close, ia, (DAT_CLOSE_FLAGS)2);
    GOOD(dat_ia_close, ia, DAT_CLOSE_ABRUPT_FLAG);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_ia_close, ia, DAT_CLOSE_ABRUPT_FLAG);
}

static void nothing(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    (void)data, (void)evd;
}

/* CNC-01..03, CNM-01, CNQ-01, CNF-01, CNW-01, CNW-04, EVC-01..04, EVQ-01, EVM-01, EVZ-01,
 * EVN-01..05, EVW-01..08, EVG-01, EVS-01..03, EVF-01..03 */
static void events(void)
{
    DAT_OS_WAIT_PROXY_AGENT none = DAT_OS_WAIT_PROXY_AGENT_NULL, agent = {NULL, nothing};
    DAT_CNO_HANDLE cno = NULL;
    DAT_CNO_PARAM cno_param;
    DAT_EVD_HANDLE evd = NULL, fired = near.async;
    DAT_EVD_PARAM param;
    DAT_EVENT event;
    DAT_COUNT more = -1, round;
    GOOD(dat_cno_create, near.ia, none, &cno);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_cno_create, near.zone, none, &cno);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_cno_create, near.ia, none, NULL);
    GOOD(dat_cno_modify_agent, cno, agent);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO, dat_cno_modify_agent, near.ia, agent);
    GOOD(dat_cno_query, cno, DAT_CNO_FIELD_ALL, &cno_param);
    CHECK(cno_param.ia_handle == near.ia && cno_param.agent.proxy_agent_func == nothing);
    OK(dat_cno_modify_agent(cno, none));
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_cno_query, cno, (DAT_CNO_PARAM_MASK)4, &cno_param);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_cno_query, cno, DAT_CNO_FIELD_ALL, NULL);

    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_evd_create, near.ia, 0, cno, DAT_EVD_SOFTWARE_FLAG, &evd);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4, dat_evd_create, near.ia, 4, cno, (DAT_EVD_FLAGS)0, &evd);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4, dat_evd_create, near.ia, 4, cno, (DAT_EVD_FLAGS)0x200, &evd);
    BAD(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD, dat_evd_create, near.ia, 0x7FFFFFFF, cno, DAT_EVD_SOFTWARE_FLAG, &evd);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO, dat_evd_create, near.ia, 4, near.zone, DAT_EVD_SOFTWARE_FLAG, &evd);
    CHECK(evd == NULL);
    GOOD(dat_evd_create, near.ia, 4, cno, DAT_EVD_SOFTWARE_FLAG, &evd);
    GOOD(dat_evd_query, evd, DAT_EVD_FIELD_ALL, &param);
    CHECK(param.ia_handle == near.ia && param.evd_qlen >= 4 && param.cno_handle == cno && param.evd_flags == DAT_EVD_SOFTWARE_FLAG);
    CHECK((param.evd_state & 0x0F) == (DAT_EVD_STATE_ENABLED | DAT_EVD_STATE_WAITABLE));
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_evd_query, evd, (DAT_EVD_PARAM_MASK)0x20, &param);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_evd_query, evd, DAT_EVD_FIELD_ALL, NULL);

    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data.pointer = &near;
    GOOD(dat_evd_post_se, evd, &event);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_evd_post_se, evd, NULL);
    EXPECT(DAT_INVALID_PARAMETER, dat_evd_post_se(near.requests, &event));
    event.event_number = DAT_DTO_COMPLETION_EVENT;
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_evd_post_se, evd, &event);
    GOOD(dat_cno_wait, cno, DAT_TIMEOUT_INFINITE, &fired);
    CHECK(fired == evd);
    BAD(DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE, dat_cno_wait, cno, 1000, &fired);
    CHECK(fired == DAT_HANDLE_NULL);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_cno_wait, cno, 1000, NULL);
    memset(&event, 0, sizeof event);
    GOOD(dat_evd_dequeue, evd, &event);
    CHECK(event.event_number == DAT_SOFTWARE_EVENT && event.event_data.software_event_data.pointer == &near && event.evd_handle == evd);
    BAD(DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE, dat_evd_dequeue, evd, &event);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_evd_dequeue, evd, NULL);

    for (round = 0; round < 3; round++) {
        OK(dat_evd_post_se(evd, &event));
    }
    GOOD(dat_evd_wait, evd, 0, 2, &event, &more);
    CHECK(more == 2);
    BAD(DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE, dat_evd_wait, evd, 1000, 3, &event, &more);
    CHECK(more == 2);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_evd_wait, evd, 0, 0, &event, &more);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_evd_wait, evd, 0, param.evd_qlen + 1, &event, &more);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4, dat_evd_wait, evd, 0, 1, NULL, &more);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG5, dat_evd_wait, evd, 0, 1, &event, NULL);
    GOOD(dat_evd_resize, evd, 8);
    EXPECT(DAT_INVALID_STATE, dat_evd_resize(evd, 1));
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_evd_resize, evd, 0);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1, dat_evd_resize, cno, 8);

    GOOD(dat_evd_set_unwaitable, evd);
    EXPECT(DAT_INVALID_STATE, dat_evd_wait(evd, 0, 1, &event, &more));
    GOOD(dat_evd_clear_unwaitable, evd);
    /* The events posted above have triggered it. */
    OK(dat_cno_wait(cno, 0, &fired));
    GOOD(dat_evd_disable, evd);
    OK(dat_evd_post_se(evd, &event));
    BAD(DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE, dat_cno_wait, cno, 1000, &fired);
    GOOD(dat_evd_enable, evd);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1, dat_evd_set_unwaitable, DAT_HANDLE_NULL);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1, dat_evd_clear_unwaitable, DAT_HANDLE_NULL);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1, dat_evd_disable, DAT_HANDLE_NULL);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1, dat_evd_enable, DAT_HANDLE_NULL);

    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE, dat_cno_free, cno);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO, dat_evd_modify_cno, evd, near.zone);
    GOOD(dat_evd_modify_cno, evd, DAT_HANDLE_NULL);
    GOOD(dat_cno_free, cno);
    GOOD(dat_evd_free, evd);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1, dat_evd_free, evd);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO, dat_cno_free, cno);
}

/* PZC-01, PZQ-01, PZF-01, LMC-01, LMC-02, LMC-05, LMC-07, LMC-10, LMC-11, LMQ-01, LMF-01,
 * LSR-05, LSW-17..20, LSW-28, RMC-01, RMQ-01, RMF-01 */
static void memory(void)
{
    static char bytes[4096], cookie_bytes[DAT_LMR_COOKIE_SIZE] = "a cookie";
    static const char constant[64] = "it may be read";
    char untouched[1024 * 1024];
    DAT_REGION_DESCRIPTION description;
    DAT_PZ_HANDLE zone = NULL, freed;
    DAT_PZ_PARAM zone_param;
    DAT_LMR_HANDLE lmr = NULL, derived, shared;
    DAT_LMR_PARAM param;
    DAT_LMR_CONTEXT local = 0;
    DAT_RMR_CONTEXT remote = 77;
    DAT_RMR_HANDLE rmr = NULL;
    DAT_RMR_PARAM rmr_param;
    DAT_VLEN size = 0;
    DAT_VADDR address = 0;
    DAT_LMR_TRIPLET piece;
    GOOD(dat_pz_create, near.ia, &zone);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_pz_create, zone, &freed);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_pz_create, near.ia, NULL);
    GOOD(dat_pz_query, zone, DAT_PZ_FIELD_ALL, &zone_param);
    CHECK(zone_param.ia_handle == near.ia);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_pz_query, zone, (DAT_PZ_PARAM_MASK)2, &zone_param);

    description.for_va = bytes;
    GOOD(dat_lmr_create, near.ia, DAT_MEM_TYPE_VIRTUAL, description, sizeof bytes, zone, DAT_MEM_PRIV_ALL_FLAG, &lmr, &local, &remote,
         &size, &address);
    CHECK(lmr && size >= sizeof bytes && address <= (DAT_VADDR)(uintptr_t)bytes);
    BAD(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE, dat_lmr_create, near.ia, (DAT_MEM_TYPE)3, description, 64, zone,
        DAT_MEM_PRIV_ALL_FLAG, &shared, NULL, NULL, NULL, NULL);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_lmr_create, near.ia, (DAT_MEM_TYPE)4, description, 64, zone,
        DAT_MEM_PRIV_ALL_FLAG, &shared, NULL, NULL, NULL, NULL);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4, dat_lmr_create, near.ia, DAT_MEM_TYPE_VIRTUAL, description, 0, zone,
        DAT_MEM_PRIV_ALL_FLAG, &shared, NULL, NULL, NULL, NULL);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ, dat_lmr_create, near.ia, DAT_MEM_TYPE_VIRTUAL, description, 64, far.zone,
        DAT_MEM_PRIV_ALL_FLAG, &shared, NULL, NULL, NULL, NULL);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6, dat_lmr_create, near.ia, DAT_MEM_TYPE_VIRTUAL, description, 64, zone,
        (DAT_MEM_PRIV_FLAGS)0x40, &shared, NULL, NULL, NULL, NULL);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG7, dat_lmr_create, near.ia, DAT_MEM_TYPE_VIRTUAL, description, 64, zone,
        DAT_MEM_PRIV_ALL_FLAG, NULL, NULL, NULL, NULL, NULL);
    /* Memory that is not mapped, and memory that is read-only. */
    description.for_va = (DAT_PVOID)(uintptr_t)64;
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_lmr_create, near.ia, DAT_MEM_TYPE_VIRTUAL, description, 64, zone,
        DAT_MEM_PRIV_LOCAL_READ_FLAG, &shared, NULL, NULL, NULL, NULL);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ, dat_lmr_create, near.ia, DAT_MEM_TYPE_VIRTUAL, description, 64, far.zone,
        DAT_MEM_PRIV_LOCAL_READ_FLAG, &shared, NULL, NULL, NULL, NULL);
    description.for_va = (DAT_PVOID)(uintptr_t)constant;
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_lmr_create, near.ia, DAT_MEM_TYPE_VIRTUAL, description, sizeof constant, zone,
        DAT_MEM_PRIV_LOCAL_WRITE_FLAG, &shared, NULL, NULL, NULL, NULL);
    OK(dat_lmr_create(near.ia, DAT_MEM_TYPE_VIRTUAL, description, sizeof constant, zone, DAT_MEM_PRIV_REMOTE_READ_FLAG, &shared, NULL,
                      NULL, NULL, NULL));
    OK(dat_lmr_free(shared));
    /* A part of the stack that is not touched yet. */
    description.for_va = untouched;
    OK(dat_lmr_create(near.ia, DAT_MEM_TYPE_VIRTUAL, description, sizeof untouched, zone, DAT_MEM_PRIV_ALL_FLAG, &shared, NULL, NULL,
                      NULL, NULL));
    OK(dat_lmr_free(shared));
    GOOD(dat_lmr_query, lmr, DAT_LMR_FIELD_ALL, &param);
    CHECK(param.ia_handle == near.ia && param.mem_type == DAT_MEM_TYPE_VIRTUAL && param.region_desc.for_va == bytes);
    CHECK(param.length == sizeof bytes && param.pz_handle == zone && param.mem_priv == DAT_MEM_PRIV_ALL_FLAG);
    CHECK(param.lmr_context == local && param.rmr_context == remote && param.registered_size == size);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_lmr_query, lmr, (DAT_LMR_PARAM_MASK)0x400, &param);
    description.for_lmr_handle = lmr;
    remote = 77;
    OK(dat_lmr_create(near.ia, DAT_MEM_TYPE_LMR, description, 0, zone, DAT_MEM_PRIV_LOCAL_READ_FLAG, &derived, &local, &remote, NULL, NULL));
    CHECK(remote == 0);
    OK(dat_lmr_query(derived, DAT_LMR_FIELD_ALL, &param));
    CHECK(param.mem_type == DAT_MEM_TYPE_LMR && param.region_desc.for_lmr_handle == lmr);
    description.for_shared_memory.virtual_address = bytes;
    description.for_shared_memory.shared_memory_id = &cookie_bytes;
    OK(dat_lmr_create(near.ia, DAT_MEM_TYPE_SHARED_VIRTUAL, description, 64, zone, DAT_MEM_PRIV_ALL_FLAG, &shared, NULL, NULL, NULL, NULL));
    OK(dat_lmr_query(shared, DAT_LMR_FIELD_ALL, &param));
    CHECK(memcmp(param.region_desc.for_shared_memory.shared_memory_id, cookie_bytes, sizeof cookie_bytes) == 0);
    OK(dat_lmr_free(shared));
    OK(dat_lmr_free(derived));

    memset(&piece, 0, sizeof piece);
    OK(dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, &param));
    piece.lmr_context = param.lmr_context;
    piece.virtual_address = (DAT_VADDR)(uintptr_t)bytes;
    piece.segment_length = 64;
    GOOD(dat_lmr_sync_rdma_read, near.ia, &piece, 1);
    GOOD(dat_lmr_sync_rdma_write, near.ia, &piece, 1);
    OK(dat_lmr_sync_rdma_write(near.ia, NULL, 0));
    {
        /* Any number of segments; an invalid one is found at any place. */
        DAT_LMR_TRIPLET many[1000];
        int index;
        for (index = 0; index < 1000; index++)
            many[index] = piece;
        OK(dat_lmr_sync_rdma_read(near.ia, many, 1000));
        OK(dat_lmr_sync_rdma_write(near.ia, many, 257));
        many[999].segment_length = (DAT_VLEN)-1;
        EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_lmr_sync_rdma_read(near.ia, many, 1000));
        EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_lmr_sync_rdma_write(near.ia, many, 1000));
        EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_lmr_sync_rdma_write(near.ia, many, (DAT_VLEN)-1));
    }
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_lmr_sync_rdma_read, near.ia, NULL, 1);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_lmr_sync_rdma_write, near.ia, NULL, 1);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_lmr_sync_rdma_write, zone, &piece, 1);
    piece.segment_length = (DAT_VLEN)-1;
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_lmr_sync_rdma_write, near.ia, &piece, 1);

    GOOD(dat_rmr_create, zone, &rmr);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ, dat_rmr_create, lmr, &rmr);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_rmr_create, zone, NULL);
    GOOD(dat_rmr_query, rmr, DAT_RMR_FIELD_ALL, &rmr_param);
    CHECK(rmr_param.ia_handle == near.ia && rmr_param.pz_handle == zone);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_rmr_query, rmr, (DAT_RMR_PARAM_MASK)0x20, &rmr_param);
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE, dat_pz_free, zone);
    GOOD(dat_rmr_free, rmr);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR, dat_rmr_free, rmr);
    GOOD(dat_lmr_free, lmr);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR, dat_lmr_free, lmr);
    GOOD(dat_pz_free, zone);
}

/* EPC-01..10, EPQ-01, EPM-01, EPM-07, EPG-01, EPF-01, EPR-02, EPD-07, EPD-09, EPK-01, EPK-03,
 * EPK-05, EPU-02, EPY-03, EPH-01, EPH-04, PSC-01..05, PSA-01, PSQ-01, PSF-01, RSC-01..05,
 * RSQ-01, RSF-01 */
static void unconnected(void)
{
    DAT_EP_HANDLE ep = NULL, reserved;
    DAT_EP_ATTR attributes;
    DAT_EP_PARAM param;
    DAT_EP_STATE state;
    DAT_BOOLEAN receives, requests;
    DAT_PSP_HANDLE psp = NULL, any;
    DAT_PSP_PARAM psp_param;
    DAT_RSP_HANDLE rsp = NULL;
    DAT_RSP_PARAM rsp_param;
    DAT_CONN_QUAL qualifier = 0;
    struct sockaddr malformed;
    DAT_COUNT allocated = -7, span = -7;
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_RECV, dat_ep_create, near.ia, near.zone, near.arrivals, near.requests,
        near.connections, NULL, &ep);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_REQUEST, dat_ep_create, near.ia, near.zone, near.receives, far.requests,
        near.connections, NULL, &ep);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CONN, dat_ep_create, near.ia, near.zone, near.receives, near.requests,
        near.receives, NULL, &ep);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ, dat_ep_create, near.ia, near.ia, near.receives, near.requests,
        near.connections, NULL, &ep);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG7, dat_ep_create, near.ia, near.zone, near.receives, near.requests,
        near.connections, NULL, NULL);
    CHECK(ep == NULL);
    GOOD(dat_ep_create, near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &ep);
    GOOD(dat_ep_query, ep, DAT_EP_FIELD_ALL, &param);
    CHECK(param.ia_handle == near.ia && param.ep_state == DAT_EP_STATE_UNCONNECTED && param.pz_handle == near.zone);
    CHECK(param.ep_attr.max_message_size > 1 << 20 && param.srq_handle == DAT_HANDLE_NULL);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_ep_query, ep, (DAT_EP_PARAM_MASK)0x800, &param);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_ep_query, ep, DAT_EP_FIELD_ALL, NULL);
    attributes = param.ep_attr;
    attributes.service_type = (DAT_SERVICE_TYPE)1;
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6, dat_ep_create, near.ia, near.zone, near.receives, near.requests,
        near.connections, &attributes, &reserved);
    param.ep_attr.max_rdma_read_out = 3;
    GOOD(dat_ep_modify, ep, DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT, &param);
    param.ep_attr.max_rdma_read_out = 0;
    OK(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
    CHECK(param.ep_attr.max_rdma_read_out == 3);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_ep_modify, ep, DAT_EP_FIELD_EP_STATE, &param);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_ep_modify, ep, DAT_EP_FIELD_PZ_HANDLE, NULL);
    GOOD(dat_ep_get_status, ep, &state, &receives, &requests);
    CHECK(state == DAT_EP_STATE_UNCONNECTED && receives == DAT_TRUE && requests == DAT_TRUE);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP, dat_ep_get_status, near.ia, &state, &receives, &requests);
    GOOD(dat_ep_reset, ep);
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED, dat_ep_disconnect, ep, DAT_CLOSE_ABRUPT_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_ep_disconnect, ep, (DAT_CLOSE_FLAGS)2);
    memset(&malformed, 0, sizeof malformed);
    malformed.sa_family = AF_UNIX;
    BAD(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED, dat_ep_connect, ep, &malformed, 1, SECOND, 0, NULL, DAT_QOS_BEST_EFFORT,
        DAT_CONNECT_DEFAULT_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_ep_connect, ep, NULL, 1, SECOND, 0, NULL, DAT_QOS_BEST_EFFORT,
        DAT_CONNECT_DEFAULT_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4, dat_ep_connect, ep, adapter.ia_address_ptr, 1, 0, 0, NULL, DAT_QOS_BEST_EFFORT,
        DAT_CONNECT_DEFAULT_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG5, dat_ep_connect, ep, adapter.ia_address_ptr, 1, SECOND, -1, NULL, DAT_QOS_BEST_EFFORT,
        DAT_CONNECT_DEFAULT_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG8, dat_ep_connect, ep, adapter.ia_address_ptr, 1, SECOND, 0, NULL, DAT_QOS_BEST_EFFORT,
        (DAT_CONNECT_FLAGS)0x80);
    GOOD(dat_ep_recv_query, ep, &allocated, &span);
    CHECK((allocated == 0 || allocated == DAT_VALUE_UNKNOWN) && span >= allocated);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP, dat_ep_recv_query, near.zone, &allocated, &span);
    GOOD(dat_ep_set_watermark, ep, DAT_WATERMARK_INFINITE, DAT_WATERMARK_INFINITE);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_ep_set_watermark, ep, -5, DAT_WATERMARK_INFINITE);

    GOOD(dat_psp_create, near.ia, 4700, near.arrivals, DAT_PSP_CONSUMER_FLAG, &psp);
    BAD(DAT_CONN_QUAL_IN_USE, DAT_NO_SUBTYPE, dat_psp_create, near.ia, 4700, near.arrivals, DAT_PSP_CONSUMER_FLAG, &any);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4, dat_psp_create, near.ia, 4701, near.arrivals, (DAT_PSP_FLAGS)2, &any);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR, dat_psp_create, near.ia, 4701, near.receives, DAT_PSP_CONSUMER_FLAG, &any);
    GOOD(dat_psp_query, psp, DAT_PSP_FIELD_ALL, &psp_param);
    CHECK(psp_param.ia_handle == near.ia && psp_param.conn_qual == 4700 && psp_param.evd_handle == near.arrivals);
    CHECK(psp_param.psp_flags == DAT_PSP_CONSUMER_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_psp_query, psp, (DAT_PSP_PARAM_MASK)0x10, &psp_param);
    GOOD(dat_psp_create_any, near.ia, &qualifier, near.arrivals, DAT_PSP_CONSUMER_FLAG, &any);
    CHECK(qualifier != 0 && qualifier != 4700);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_psp_create_any, near.ia, NULL, near.arrivals, DAT_PSP_CONSUMER_FLAG, &any);
    OK(dat_psp_free(any));
    GOOD(dat_psp_free, psp);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP, dat_psp_free, psp);

    GOOD(dat_rsp_create, near.ia, 4702, ep, near.arrivals, &rsp);
    OK(dat_ep_get_status(ep, &state, &receives, &requests));
    CHECK(state == DAT_EP_STATE_RESERVED);
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RESERVED, dat_rsp_create, near.ia, 4703, ep, near.arrivals, &any);
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RESERVED, dat_ep_free, ep);
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RESERVED, dat_ep_reset, ep);
    GOOD(dat_rsp_query, rsp, DAT_RSP_FIELD_ALL, &rsp_param);
    CHECK(rsp_param.ia_handle == near.ia && rsp_param.conn_qual == 4702 && rsp_param.ep_handle == ep);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_rsp_query, rsp, (DAT_RSP_PARAM_MASK)0x10, &rsp_param);
    GOOD(dat_rsp_free, rsp);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP, dat_rsp_free, rsp);
    GOOD(dat_ep_free, ep);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP, dat_ep_free, ep);
}

/* CRQ-01, CRA-01, CRA-04, CRA-05, CRR-01, CRH-01, EPK-06, EPK-07, EPU-01, EPU-02 */
static void connections(void)
{
    DAT_EP_HANDLE second;
    DAT_PSP_HANDLE listener, other;
    DAT_CR_HANDLE request;
    DAT_CR_PARAM asked;
    DAT_EVENT event;
    char greeting[] = "please";
    OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &near.endpoint));
    OK(dat_ep_create(far.ia, far.zone, far.receives, far.requests, far.connections, NULL, &far.endpoint));
    OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &second));
    OK(dat_psp_create(far.ia, 4711, far.arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
    OK(dat_psp_create(far.ia, 4712, far.arrivals, DAT_PSP_CONSUMER_FLAG, &other));
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED, dat_ep_dup_connect, second, near.endpoint, SECOND, 0, NULL,
        DAT_QOS_BEST_EFFORT);

    /* A rejected connection. */
    GOOD(dat_ep_connect, second, adapter.ia_address_ptr, 4711, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT,
         DAT_CONNECT_DEFAULT_FLAG);
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_ACTCONNPENDING, dat_ep_connect, second, adapter.ia_address_ptr, 4711,
        DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
    event = next_event(far.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    request = event.event_data.cr_arrival_event_data.cr_handle;
    GOOD(dat_cr_reject, request);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR, dat_cr_reject, request);
    next_event(near.connections, DAT_CONNECTION_EVENT_PEER_REJECTED);
    OK(dat_ep_reset(second));

    /* A connection that is handed to another service point and accepted there. */
    OK(dat_ep_connect(near.endpoint, adapter.ia_address_ptr, 4711, DAT_TIMEOUT_INFINITE, sizeof greeting, greeting,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next_event(far.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    request = event.event_data.cr_arrival_event_data.cr_handle;
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR, dat_cr_handoff, listener, 4712);
    GOOD(dat_cr_handoff, request, 4712);
    event = next_event(far.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(event.event_data.cr_arrival_event_data.sp_handle.psp_handle == other);
    CHECK(event.event_data.cr_arrival_event_data.conn_qual == 4712);
    CHECK(event.event_data.cr_arrival_event_data.cr_handle != request);
    request = event.event_data.cr_arrival_event_data.cr_handle;
    GOOD(dat_cr_query, request, DAT_CR_FIELD_ALL, &asked);
    CHECK(asked.private_data_size >= (DAT_COUNT)sizeof greeting && strcmp(asked.private_data, greeting) == 0);
    CHECK(asked.remote_ia_address_ptr->sa_family == AF_INET && asked.local_ep_handle == DAT_HANDLE_NULL);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_cr_query, request, (DAT_CR_PARAM_MASK)0x20, &asked);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP, dat_cr_accept, request, near.endpoint, 0, NULL);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_cr_accept, request, far.endpoint, -1, NULL);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_cr_accept, request, far.endpoint, 100000, near.memory);
    GOOD(dat_cr_accept, request, far.endpoint, 0, NULL);
    next_event(near.connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    next_event(far.connections, DAT_CONNECTION_EVENT_ESTABLISHED);

    /* A second connection to the same peer, which does not answer; it is given up. */
    GOOD(dat_ep_dup_connect, second, near.endpoint, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT);
    event = next_event(far.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    OK(dat_ep_disconnect(second, DAT_CLOSE_ABRUPT_FLAG));
    OK(dat_ep_free(second));
    OK(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle));
    OK(dat_psp_free(other));
    OK(dat_psp_free(listener));
}

/* EPS-01..03, EPV-01, EPV-05, EPW-01..43, EPB-01..04, RMB-01..43, EPD-02, EPD-05 */
static void transfers(void)
{
    DAT_LMR_TRIPLET pieces[1];
    DAT_RMR_TRIPLET remote = target(&far, 0, 64);
    DAT_RMR_HANDLE window;
    DAT_RMR_CONTEXT context = 0;
    DAT_REGION_DESCRIPTION description;
    DAT_LMR_HANDLE lmr;
    DAT_EVENT event;
    static char written[16];
    pieces[0] = piece(&far, 0, 64);
    GOOD(dat_ep_post_recv, far.endpoint, 1, pieces, cookie(1), DAT_COMPLETION_DEFAULT_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG5, dat_ep_post_recv, far.endpoint, 1, pieces, cookie(1), DAT_COMPLETION_SUPPRESS_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_ep_post_recv, far.endpoint, 1000, pieces, cookie(1), DAT_COMPLETION_DEFAULT_FLAG);
    pieces[0] = piece(&near, 0, 64);
    memcpy(near.memory, "sent", 5);
    GOOD(dat_ep_post_send, near.endpoint, 1, pieces, cookie(2), DAT_COMPLETION_SOLICITED_WAIT_FLAG);
    completed(far.receives, far.endpoint, 1, DAT_DTO_RECEIVE, 64);
    completed(near.requests, near.endpoint, 2, DAT_DTO_SEND, 64);
    CHECK(strcmp(far.memory, "sent") == 0);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG5, dat_ep_post_send, near.endpoint, 1, pieces, cookie(2), (DAT_COMPLETION_FLAGS)0x10);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_ep_post_send, near.endpoint, 1, NULL, cookie(2), DAT_COMPLETION_DEFAULT_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_ep_post_send, near.endpoint, -1, pieces, cookie(2), DAT_COMPLETION_DEFAULT_FLAG);

    memcpy(near.memory, "wrote", 6);
    GOOD(dat_ep_post_rdma_write, near.endpoint, 1, pieces, cookie(3), &remote, DAT_COMPLETION_DEFAULT_FLAG);
    completed(near.requests, near.endpoint, 3, DAT_DTO_RDMA_WRITE, 64);
    CHECK(strcmp(far.memory, "wrote") == 0);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG5, dat_ep_post_rdma_write, near.endpoint, 1, pieces, cookie(3), NULL,
        DAT_COMPLETION_DEFAULT_FLAG);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6, dat_ep_post_rdma_write, near.endpoint, 1, pieces, cookie(3), &remote,
        DAT_COMPLETION_UNSIGNALLED_FLAG);
    remote.segment_length = 63;
    EXPECT(DAT_LENGTH_ERROR, dat_ep_post_rdma_write(near.endpoint, 1, pieces, cookie(3), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    remote.segment_length = 64;
    memcpy(far.memory, "read", 5);
    GOOD(dat_ep_post_rdma_read, near.endpoint, 1, pieces, cookie(4), &remote, DAT_COMPLETION_DEFAULT_FLAG);
    completed(near.requests, near.endpoint, 4, DAT_DTO_RDMA_READ, 64);
    CHECK(strcmp(near.memory, "read") == 0);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG5, dat_ep_post_rdma_read, near.endpoint, 1, pieces, cookie(4), NULL,
        DAT_COMPLETION_DEFAULT_FLAG);
    remote.segment_length = 65;
    EXPECT(DAT_LENGTH_ERROR, dat_ep_post_rdma_read(near.endpoint, 1, pieces, cookie(4), &remote, DAT_COMPLETION_DEFAULT_FLAG));

    OK(dat_rmr_create(far.zone, &window));
    pieces[0] = piece(&far, 128, 16);
    GOOD(dat_rmr_bind, window, pieces, DAT_MEM_PRIV_REMOTE_READ_FLAG, far.endpoint, cookie(5), DAT_COMPLETION_DEFAULT_FLAG, &context);
    event = next_event(far.requests, DAT_RMR_BIND_COMPLETION_EVENT);
    CHECK(event.event_data.rmr_completion_event_data.rmr_handle == window);
    CHECK(event.event_data.rmr_completion_event_data.user_cookie.as_64 == 5);
    CHECK(event.event_data.rmr_completion_event_data.status == DAT_RMR_BIND_SUCCESS);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_rmr_bind, window, NULL, DAT_MEM_PRIV_NONE_FLAG, far.endpoint, cookie(5),
        DAT_COMPLETION_DEFAULT_FLAG, &context);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_rmr_bind, window, pieces, (DAT_MEM_PRIV_FLAGS)0x40, far.endpoint, cookie(5),
        DAT_COMPLETION_DEFAULT_FLAG, &context);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP, dat_rmr_bind, window, pieces, DAT_MEM_PRIV_NONE_FLAG, near.endpoint, cookie(5),
        DAT_COMPLETION_DEFAULT_FLAG, &context);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6, dat_rmr_bind, window, pieces, DAT_MEM_PRIV_NONE_FLAG, far.endpoint, cookie(5),
        (DAT_COMPLETION_FLAGS)0x10, &context);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG7, dat_rmr_bind, window, pieces, DAT_MEM_PRIV_NONE_FLAG, far.endpoint, cookie(5),
        DAT_COMPLETION_DEFAULT_FLAG, NULL);
    /* An unbind needs no place for the context, because it returns none. */
    pieces[0].segment_length = 0;
    OK(dat_rmr_bind(window, pieces, DAT_MEM_PRIV_NONE_FLAG, far.endpoint, cookie(6), DAT_COMPLETION_DEFAULT_FLAG, NULL));
    next_event(far.requests, DAT_RMR_BIND_COMPLETION_EVENT);
    /* Memory registered for writing only cannot be read, neither by posts nor by peers through a
     * window. */
    description.for_va = written;
    OK(dat_lmr_create(far.ia, DAT_MEM_TYPE_VIRTUAL, description, sizeof written, far.zone, DAT_MEM_PRIV_LOCAL_WRITE_FLAG, &lmr,
                      &pieces[0].lmr_context, NULL, NULL, NULL));
    pieces[0].virtual_address = (DAT_VADDR)(uintptr_t)written;
    pieces[0].segment_length = sizeof written;
    remote = target(&near, 0, sizeof written);
    EXPECT(DAT_PRIVILEGES_VIOLATION, dat_ep_post_send(far.endpoint, 1, pieces, cookie(7), DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(DAT_PRIVILEGES_VIOLATION, dat_ep_post_rdma_write(far.endpoint, 1, pieces, cookie(7), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(DAT_PRIVILEGES_VIOLATION, dat_rmr_bind(window, pieces, DAT_MEM_PRIV_REMOTE_READ_FLAG, far.endpoint, cookie(7),
                                         DAT_COMPLETION_DEFAULT_FLAG, &context));
    OK(dat_lmr_free(lmr));
    OK(dat_rmr_free(window));

    GOOD(dat_ep_disconnect, near.endpoint, DAT_CLOSE_GRACEFUL_FLAG);
    next_event(near.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    next_event(far.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_free(near.endpoint));
    OK(dat_ep_free(far.endpoint));
}

/* SRC-01..06, SRF-01, SRY-01, SRY-02, SRZ-01, SRZ-02, SRL-05, SRQR-24..29, SRQR-41, EPX-01,
 * EPX-04, EPX-09 */
static void shared_receives(void)
{
    DAT_SRQ_ATTR attributes = {8, 1, DAT_SRQ_LW_DEFAULT};
    DAT_SRQ_HANDLE srq = NULL;
    DAT_SRQ_PARAM param;
    DAT_EP_ATTR wanted;
    DAT_EP_PARAM ep_param;
    DAT_EP_HANDLE ep = NULL, plain;
    DAT_LMR_TRIPLET pieces[1];
    GOOD(dat_srq_create, near.ia, near.zone, &attributes, &srq);
    attributes.low_watermark = 1;
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_srq_create, near.ia, near.zone, &attributes, &ep);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_srq_create, near.ia, near.zone, NULL, &ep);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4, dat_srq_create, near.ia, near.zone, &attributes, NULL);
    attributes.low_watermark = 0;
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ, dat_srq_create, near.ia, far.zone, &attributes, &ep);
    pieces[0] = piece(&near, 0, 64);
    GOOD(dat_srq_post_recv, srq, 1, pieces, cookie(1));
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_srq_post_recv, srq, -1, pieces, cookie(1));
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_srq_post_recv, srq, 1, NULL, cookie(1));
    GOOD(dat_srq_query, srq, DAT_SRQ_FIELD_ALL, &param);
    CHECK(param.ia_handle == near.ia && param.srq_state == DAT_SRQ_STATE_OPERATIONAL && param.pz_handle == near.zone);
    CHECK(param.max_recv_dtos >= 8 && (param.outstanding_dto_count == 1 || param.outstanding_dto_count == DAT_VALUE_UNKNOWN));
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_srq_query, srq, (DAT_SRQ_PARAM_MASK)0x100, &param);
    GOOD(dat_srq_resize, srq, 16);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_srq_resize, srq, -1);
    GOOD(dat_srq_set_lw, srq, 0);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_srq_set_lw, srq, -1);

    OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &plain));
    OK(dat_ep_query(plain, DAT_EP_FIELD_ALL, &ep_param));
    wanted = ep_param.ep_attr;
    GOOD(dat_ep_create_with_srq, near.ia, near.zone, near.receives, near.requests, near.connections, srq, &wanted, &ep);
    BAD(DAT_INVALID_PARAMETER, DAT_INVALID_ARG7, dat_ep_create_with_srq, near.ia, near.zone, near.receives, near.requests,
        near.connections, srq, NULL, &plain);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_SRQ, dat_ep_create_with_srq, near.ia, near.zone, near.receives, near.requests,
        near.connections, DAT_HANDLE_NULL, &wanted, &plain);
    OK(dat_ep_query(ep, DAT_EP_FIELD_ALL, &ep_param));
    CHECK(ep_param.srq_handle == srq);
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE, dat_ep_post_recv, ep, 1, pieces, cookie(2), DAT_COMPLETION_DEFAULT_FLAG);
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE, dat_srq_free, srq);
    OK(dat_ep_free(ep));
    OK(dat_ep_free(plain));
    GOOD(dat_srq_free, srq);
    BAD(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_SRQ, dat_srq_free, srq);
}

/* Frees of a dispatcher and a zone that an endpoint uses are refused. EVF-02, LMF-01 */
static void what_is_in_use(void)
{
    DAT_EP_HANDLE ep;
    OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &ep));
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE, dat_evd_free, near.receives);
    BAD(DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE, dat_pz_free, near.zone);
    OK(dat_ep_free(ep));
}


int main(int count, char **names)
{
    the_registry();
    adapters();
    near = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    far = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_ia_query(far.ia, NULL, DAT_IA_FIELD_ALL, &adapter, 0, NULL));
    events();
    memory();
    unconnected();
    connections();
    transfers();
    shared_receives();
    what_is_in_use();
    free_side(&near);
    free_side(&far);
    return all_were_made(count, names);
}
