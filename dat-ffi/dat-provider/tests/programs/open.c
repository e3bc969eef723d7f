/* Opens, queries and closes an adapter through the registry, many times. */
#include "check.h"

int main(void)
{
    DAT_IA_HANDLE ia = DAT_HANDLE_NULL, second = DAT_HANDLE_NULL;
    DAT_EVD_HANDLE async, other;
    DAT_IA_ATTR attributes;
    DAT_PROVIDER_ATTR provider;
    DAT_PROVIDER_INFO info, *infos[1] = {&info};
    DAT_COUNT count = 0;
    DAT_HANDLE_TYPE kind;
    DAT_CONTEXT context;
    int round, row, column;

    OK(dat_registry_list_providers(1, &count, infos));
    CHECK(count == 1 && strcmp(info.ia_name, "mock0") == 0);

    async = DAT_HANDLE_NULL;
    EXPECT(DAT_PROVIDER_NOT_FOUND, dat_ia_open("mock9", 8, &async, &ia));
    EXPECT(DAT_INVALID_PARAMETER, dat_ia_open("mock0", 0, &async, &ia));
    CHECK(async == DAT_HANDLE_NULL);

    for (round = 0; round < 3; round++) {
        async = DAT_HANDLE_NULL;
        OK(dat_ia_open("mock0", 8, &async, &ia));
        CHECK(async != DAT_HANDLE_NULL);
        memset(&attributes, 0xAA, sizeof attributes);
        memset(&provider, 0xAA, sizeof provider);
        OK(dat_ia_query(ia, &other, DAT_IA_FIELD_ALL, &attributes, DAT_PROVIDER_FIELD_ALL, &provider));
        CHECK(other == async);
        CHECK(strcmp(attributes.adapter_name, "mock0") == 0);
        CHECK(attributes.ia_address_ptr->sa_family == AF_INET);
        CHECK(attributes.max_eps > 0 && attributes.max_srqs > 0 && attributes.max_rmrs > 0);
        CHECK(attributes.max_lmr_block_size >= 1 << 30 && attributes.max_message_size >= 1 << 30);
        CHECK(attributes.extension_supported == DAT_EXTENSION_NONE && !attributes.zb_supported);
        CHECK(attributes.num_transport_attr == 0 && attributes.num_vendor_attr == 0);
        CHECK(provider.dapl_version_major == 2 && provider.dapl_version_minor == 0 && !provider.is_thread_safe);
        CHECK(provider.max_private_data_size >= 64);
        CHECK(provider.srq_supported && provider.pz_support == DAT_PZ_SHAREABLE);
        CHECK(provider.completion_flags_supported & DAT_COMPLETION_SUPPRESS_FLAG);
        for (row = 0; row < 6; row++) {
            for (column = 0; column < 6; column++) {
                CHECK(provider.evd_stream_merging_supported[row][column] <= 1);
            }
        }
        /* A pointer may be null if its mask is empty. */
        OK(dat_ia_query(ia, NULL, 0, NULL, 0, NULL));
        EXPECT(DAT_INVALID_PARAMETER, dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, NULL, 0, NULL));
        EXPECT(DAT_INVALID_PARAMETER, dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL + 1, &attributes, 0, NULL));

        OK(dat_get_handle_type(ia, &kind));
        CHECK(kind == DAT_HANDLE_TYPE_IA);
        OK(dat_get_handle_type(async, &kind));
        CHECK(kind == DAT_HANDLE_TYPE_EVD);
        context.as_64 = 77;
        OK(dat_set_consumer_context(ia, context));
        context.as_64 = 0;
        OK(dat_get_consumer_context(ia, &context));
        CHECK(context.as_64 == 77);
        OK(dat_get_consumer_context(async, &context));
        CHECK(context.as_64 == 0);

        /* A second adapter, without an asynchronous event dispatcher of its own. */
        other = DAT_EVD_ASYNC_EXISTS;
        OK(dat_ia_open("mock0", 8, &other, &second));
        CHECK(other == DAT_EVD_OUT_OF_SCOPE && second != ia);
        OK(dat_ia_close(second, DAT_CLOSE_ABRUPT_FLAG));
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_ia_close(second, DAT_CLOSE_ABRUPT_FLAG));

        EXPECT(DAT_INVALID_PARAMETER, dat_ia_close(ia, (DAT_CLOSE_FLAGS)7));
        OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_ia_query(ia, NULL, 0, NULL, 0, NULL));
        EXPECT(DAT_INVALID_HANDLE, dat_evd_disable(async));
    }
    return 0;
}
