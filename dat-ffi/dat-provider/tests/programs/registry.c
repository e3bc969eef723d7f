/* The registry itself: its list of providers, its errors, and self-registered providers. */
#include "check.h"

#include <dat2/dat_registry.h>

extern DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE, DAT_IA_HANDLE *);
extern DAT_RETURN dat_extension_op(DAT_HANDLE, DAT_EXTENDED_OP, ...);

static DAT_RETURN open_as(const char *name, DAT_UINT32 major, DAT_UINT32 minor, DAT_BOOLEAN safe)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia = (DAT_IA_HANDLE)0x77;
    DAT_RETURN code = dat_ia_openv((char *)name, 8, &async, &ia, major, minor, safe);
    if (code == DAT_SUCCESS) {
        OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    } else {
        CHECK(ia == (DAT_IA_HANDLE)0x77 && async == DAT_HANDLE_NULL);
    }
    return code;
}

static DAT_RETURN open_nothing(const DAT_NAME_PTR name, DAT_COUNT length, DAT_EVD_HANDLE *evd, DAT_IA_HANDLE *ia)
{
    (void)name, (void)length, (void)evd, (void)ia;
    return DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES | DAT_RESOURCE_DEVICE;
}

int main(void)
{
    DAT_PROVIDER_INFO infos[8], *list[8], mine;
    DAT_PROVIDER provider;
    DAT_COUNT count = -1, index;
    DAT_IA_HANDLE ia, first, own = NULL, back = NULL;
    DAT_EVD_HANDLE async;
    const char *major, *minor;
    char name[300];
    int round;

    for (index = 0; index < 8; index++) {
        memset(&infos[index], 0x55, sizeof infos[index]);
        list[index] = &infos[index];
    }

    /* Two lines with the same name, a missing library, a library that is no provider, OFA's
     * provider, and a missing device. */
    OK(dat_registry_list_providers(8, &count, list));
    CHECK(count == 6);
    CHECK(strcmp(infos[0].ia_name, "mock0") == 0 && strcmp(infos[1].ia_name, "mock0") == 0);
    CHECK(strcmp(infos[2].ia_name, "nowhere") == 0 && strcmp(infos[4].ia_name, "ofa") == 0);
    CHECK(infos[0].dapl_version_major == 2 && infos[0].dapl_version_minor == 0 && infos[0].is_thread_safe == DAT_FALSE);
    CHECK(infos[6].dapl_version_major == 0x55555555);
    OK(dat_registry_list_providers(2, &count, list));
    CHECK(count == 2);
    EXPECT(DAT_INVALID_PARAMETER, dat_registry_list_providers(0, &count, list));
    CHECK(count == 6);
    EXPECT(DAT_INVALID_PARAMETER, dat_registry_list_providers(8, NULL, list));
    EXPECT(DAT_INVALID_PARAMETER, dat_registry_list_providers(8, &count, NULL));

    /* The subtype names the missing part. */
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, open_as("mock1", 2, 0, DAT_FALSE));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, open_as("kernel", 2, 0, DAT_FALSE));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, open_as("one", 1, 2, DAT_FALSE));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, open_as("broken", 2, 0, DAT_FALSE));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_MAJOR_NOT_FOUND, open_as("mock0", 1, 0, DAT_FALSE));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_MINOR_NOT_FOUND, open_as("mock0", 2, 1, DAT_FALSE));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_THREAD_SAFETY_NOT_FOUND, open_as("mock0", 2, 0, DAT_TRUE));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, open_as("nowhere", 2, 0, DAT_FALSE));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, open_as("no-provider", 2, 0, DAT_FALSE));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, open_as("far", 2, 0, DAT_FALSE));
    EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1, open_as(NULL, 2, 0, DAT_FALSE));
    memset(name, 'n', sizeof name);
    name[256] = 0;
    EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1, open_as(name, 2, 0, DAT_FALSE));
    name[255] = 0;
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, open_as(name, 2, 0, DAT_FALSE));
    async = DAT_HANDLE_NULL;
    EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_ia_openv("mock0", 8, &async, NULL, 2, 0, DAT_FALSE));
    EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3, dat_ia_openv("mock0", 8, NULL, &ia, 2, 0, DAT_FALSE));

    /* OFA's provider is loaded and finds no device. */
    {
        DAT_RETURN code = open_as("ofa", 2, 0, DAT_FALSE);
        CHECK(code != DAT_SUCCESS && DAT_GET_TYPE(code) != DAT_PROVIDER_NOT_FOUND);
    }

    /* Opens again after the last close, many times; the handle of a closed adapter is invalid. */
    first = DAT_HANDLE_NULL;
    for (round = 0; round < 20; round++) {
        async = DAT_HANDLE_NULL;
        OK(dat_ia_openv("mock0", 8, &async, &ia, 2, 0, DAT_FALSE));
        CHECK(ia != first);
        if (first != DAT_HANDLE_NULL) {
            EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_ia_close(first, DAT_CLOSE_ABRUPT_FLAG));
        }
        OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
        first = ia;
    }

    /* Each handle of an adapter leads to the other one. */
    async = DAT_HANDLE_NULL;
    OK(dat_ia_openv("mock0", 8, &async, &ia, 2, 0, DAT_FALSE));
    OK(dats_get_ia_handle(ia, &own));
    CHECK(own != ia);
    OK(dats_get_ia_handle(own, &back));
    CHECK(back == ia);
    back = NULL;
    EXPECT(DAT_INVALID_HANDLE, dats_get_ia_handle(async, &back));
    EXPECT(DAT_INVALID_HANDLE, dats_get_ia_handle(first, &back));
    CHECK(back == NULL);

    /* Results of extended operations. */
    {
        struct side side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
        DAT_EP_HANDLE ep;
        OK(dat_ep_create(side.ia, side.zone, side.receives, side.requests, side.connections, NULL, &ep));
        EXPECT(DAT_NOT_IMPLEMENTED, dat_extension_op(ep, (DAT_EXTENDED_OP)1, 2, 3.5, 4, 5, 6, 7, 8));
        EXPECT(DAT_NOT_IMPLEMENTED, dat_extension_op(ep, (DAT_EXTENDED_OP)77));
        EXPECT(DAT_INVALID_HANDLE, dat_extension_op(ia, (DAT_EXTENDED_OP)1));
        EXPECT(DAT_INVALID_HANDLE, dat_extension_op(DAT_HANDLE_NULL, (DAT_EXTENDED_OP)1));
        OK(dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG));
    }
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));

    /* A provider that registers itself. */
    memset(&provider, 0, sizeof provider);
    memset(&mine, 0, sizeof mine);
    strcpy(mine.ia_name, "mine");
    mine.dapl_version_major = 2;
    mine.dapl_version_minor = 3;
    mine.is_thread_safe = DAT_TRUE;
    provider.device_name = "mine";
    provider.ia_open_func = open_nothing;
    EXPECT(DAT_INVALID_PARAMETER, dat_registry_add_provider(NULL, &mine));
    EXPECT(DAT_INVALID_PARAMETER, dat_registry_add_provider(&provider, NULL));
    mine.dapl_version_major = 1;
    EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_registry_add_provider(&provider, &mine));
    mine.dapl_version_major = 2;
    OK(dat_registry_add_provider(&provider, &mine));
    EXPECT(DAT_PROVIDER_ALREADY_REGISTERED, dat_registry_add_provider(&provider, &mine));
    OK(dat_registry_list_providers(8, &count, list));
    CHECK(count == 7 && strcmp(infos[6].ia_name, "mine") == 0);
    EXPECT_CODE(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE, open_as("mine", 2, 1, DAT_TRUE));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_MINOR_NOT_FOUND, open_as("mine", 2, 4, DAT_TRUE));
    OK(dat_registry_remove_provider(&provider, &mine));
    EXPECT(DAT_INVALID_PARAMETER, dat_registry_remove_provider(&provider, &mine));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, open_as("mine", 2, 0, DAT_TRUE));

    OK(dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP, &major, &minor));
    CHECK(strcmp(major, "DAT_INVALID_HANDLE") == 0 && strcmp(minor, "DAT_INVALID_HANDLE_EP") == 0);
    OK(dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_STATE | DAT_INVALID_STATE_EP_ACTCONNPENDING, &major, &minor));
    CHECK(strcmp(major, "DAT_INVALID_STATE") == 0 && strcmp(minor, "DAT_INVALID_STATE_EP_ACTCONNPENDING") == 0);
    OK(dat_strerror(DAT_QUEUE_EMPTY, &major, &minor));
    CHECK(strcmp(major, "DAT_QUEUE_EMPTY") == 0 && strlen(minor) == 0);
    OK(dat_strerror(DAT_SUCCESS, &major, &minor));
    CHECK(strcmp(major, "DAT_SUCCESS") == 0 && strlen(minor) == 0);
    EXPECT(DAT_INVALID_PARAMETER, dat_strerror(0x80FF0000, &major, &minor));
    EXPECT(DAT_INVALID_PARAMETER, dat_strerror(DAT_SUCCESS, NULL, &minor));
    return 0;
}
