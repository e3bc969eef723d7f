/* The registry: discovered devices, lines of dat.conf, providers in libraries and in the
 * program.
 *
 * The first argument names the kind of dat.conf. IAO-06, REGL-01..05, REGA-01, REGA-02, REGR-01,
 * PINI-01..03, GEN-03, GEN-12 */
#include "check.h"
#include "guest.h"

#include <dlfcn.h>
#include <netinet/in.h>

#define ROOM 16

static DAT_PROVIDER_INFO infos[ROOM], *places[ROOM];

/* Lists the providers in `infos` and returns their number. */
static DAT_COUNT listed(void)
{
    DAT_COUNT count = -1;
    int index;
    for (index = 0; index < ROOM; index++) {
        places[index] = &infos[index];
        memset(places[index], 0xAA, sizeof infos[index]);
    }
    OK(dat_registry_list_providers(ROOM, &count, places));
    for (index = 0; index < count; index++) {
        CHECK(memchr(infos[index].ia_name, 0, sizeof infos[index].ia_name));
    }
    return count;
}

static const DAT_PROVIDER_INFO *info_of(const char *name)
{
    DAT_COUNT count = listed();
    int index;
    for (index = 0; index < count; index++) {
        if (strcmp(infos[index].ia_name, name) == 0) {
            return &infos[index];
        }
    }
    return NULL;
}

static DAT_RETURN opened(const char *name, DAT_BOOLEAN is_thread_safe, DAT_IA_HANDLE *ia)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    return dat_ia_openv(name, 8, &async, ia, 1, 2, is_thread_safe);
}

/* Returns the last byte of an adapter's address. */
static int host_of(DAT_IA_HANDLE ia)
{
    DAT_IA_ATTR attributes;
    OK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attributes, 0, NULL));
    return ntohl(((struct sockaddr_in *)attributes.ia_address_ptr)->sin_addr.s_addr) & 0xFF;
}

/* No line for 1.x: the devices of the host, for requests with and without thread safety. */
static void found(void)
{
    DAT_IA_HANDLE ia, other;
    const DAT_PROVIDER_INFO *info = info_of("mock0");
    CHECK(info && info->dapl_version_major == 1 && info->dapl_version_minor == 2);
    CHECK(dlvsym(RTLD_DEFAULT, "dat_ia_openv", "DAT_1.2") && !dlvsym(RTLD_DEFAULT, "dat_ia_openv", "DAT_2.0"));
    OK(opened("mock0", DAT_FALSE, &ia));
    OK(opened("mock0", DAT_TRUE, &other));
    CHECK(ia != other && host_of(ia) == 1 && host_of(other) == 1);
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    OK(dat_ia_close(other, DAT_CLOSE_GRACEFUL_FLAG));
}

/* All calls on objects of another provider. */
static void of_a_guest(DAT_IA_HANDLE ia)
{
    DAT_PZ_HANDLE zone = NULL;
    DAT_PZ_PARAM param;
    DAT_HANDLE_TYPE type;
    DAT_EVENT event;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
    DAT_VLEN size;
    DAT_VADDR address;
    DAT_REGION_DESCRIPTION description;
    struct sockaddr where;
    OK(dat_get_handle_type(ia, &type));
    CHECK(type == DAT_HANDLE_TYPE_IA);
    OK(dat_pz_create(ia, &zone));
    OK(dat_get_handle_type(zone, &type));
    CHECK(type == DAT_HANDLE_TYPE_PZ);
    OK(dat_pz_query(zone, DAT_PZ_FIELD_ALL, &param));
    CHECK(param.ia_handle == ia);
    EXPECT_CODE(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2, dat_pz_query(zone, (DAT_PZ_PARAM_MASK)8, &param));
    CHECK(dat_ep_connect(zone, &where, 0x100000000000 + 1, 2, 4, &where, (DAT_QOS)8, (DAT_CONNECT_FLAGS)16) == 33);
    description.for_shared_memory.virtual_address = NULL;
    description.for_shared_memory.shared_memory_id = (DAT_LMR_COOKIE)&where;
    OK((dat_lmr_create)(ia, DAT_MEM_TYPE_SHARED_VIRTUAL, description, 5000000000u, zone, DAT_MEM_PRIV_ALL_FLAG, &lmr, &local, &remote,
                        &size, &address));
    CHECK(lmr == zone && local == DAT_MEM_TYPE_SHARED_VIRTUAL && remote == DAT_MEM_PRIV_ALL_FLAG && size == 5000000000u);
    CHECK(address == (DAT_VADDR)(uintptr_t)&where);
    /* Slots that the provider left empty. */
    EXPECT(DAT_NOT_IMPLEMENTED, dat_evd_dequeue(zone, &event));
    EXPECT(DAT_NOT_IMPLEMENTED, dat_pz_free(zone));
    free(zone);
}

/* Lines of dat.conf; `library` is the one of the other provider. */
static void configured(const char *library)
{
    DAT_IA_HANDLE ia = NULL, second = NULL;
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    const DAT_PROVIDER_INFO *info;
    int *began, *ended, round;
    void *guest;
    CHECK(info_of("mock0") == NULL);
    info = info_of("ours");
    CHECK(info && info->dapl_version_major == 1 && info->dapl_version_minor == 2 && info->is_thread_safe == DAT_TRUE);
    info = info_of("guest");
    CHECK(info && !info->is_thread_safe && info->dapl_version_minor == 1);
    /* Lines for another edition, of another section, for the kernel. */
    CHECK(!info_of("two") && !info_of("other") && !info_of("kernel"));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, opened("two", DAT_FALSE, &ia));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, opened("mock0", DAT_FALSE, &ia));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_THREAD_SAFETY_NOT_FOUND, opened("ours", DAT_FALSE, &ia));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_MINOR_NOT_FOUND, opened("guest", DAT_FALSE, &ia));
    /* A library that cannot be loaded, one that is no provider, one that does not register
     * itself. */
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, opened("nowhere", DAT_FALSE, &ia));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, opened("none", DAT_FALSE, &ia));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, opened("silent", DAT_FALSE, &ia));
    CHECK(ia == NULL);

    OK(opened("ours", DAT_TRUE, &ia));
    CHECK(host_of(ia) == 7);
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    /* The library of the first line with the name cannot be loaded; the second one can. */
    OK(opened("twice", DAT_FALSE, &ia));
    CHECK(host_of(ia) == 9);
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));

    guest = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    CHECK(guest);
    began = dlsym(guest, "guest_began");
    ended = dlsym(guest, "guest_ended");
    CHECK(began && ended && *began == 1);
    for (round = 1; round <= 3; round++) {
        CHECK(dat_ia_openv("guest", 8, &async, &ia, 1, 1, DAT_FALSE) == DAT_SUCCESS);
        CHECK(async == DAT_EVD_OUT_OF_SCOPE && *began == 1 + round && *ended == round - 1);
        OK(dat_ia_openv("guest", 8, &async, &second, 1, 0, DAT_FALSE));
        CHECK(second != ia && *began == 1 + round);
        of_a_guest(ia);
        /* The provider's own error; the adapter stays open. */
        EXPECT(DAT_INVALID_STATE, dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
        EXPECT(DAT_INTERNAL_ERROR, dat_ia_openv("guest", 13, &async, &ia, 1, 1, DAT_FALSE));
        OK(dat_ia_close(second, DAT_CLOSE_ABRUPT_FLAG));
        CHECK(*ended == round - 1);
        OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
        CHECK(*ended == round);
        EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA, dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
        free(ia);
        free(second);
    }
    /* The same handle for two opens: the provider ends after the second close. A refused close
     * does not count. */
    OK(dat_ia_openv("guest", 14, &async, &ia, 1, 1, DAT_FALSE));
    OK(dat_ia_openv("guest", 14, &async, &second, 1, 1, DAT_FALSE));
    CHECK(second == ia && *began == 5 && *ended == 3);
    EXPECT(DAT_INVALID_STATE, dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    CHECK(*ended == 3);
    EXPECT(DAT_INVALID_STATE, dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    CHECK(*ended == 3);
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    CHECK(*ended == 4);
    free(ia);
    CHECK(info_of("guest"));
}

/* A configured file that cannot be read has no replacement. */
static void unreadable(void)
{
    DAT_COUNT count = -1;
    DAT_IA_HANDLE ia;
    places[0] = &infos[0];
    EXPECT(DAT_INTERNAL_ERROR, dat_registry_list_providers(1, &count, places));
    CHECK(count == 0);
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, opened("mock0", DAT_FALSE, &ia));
}

/* The program is a provider itself. */
static void own(void)
{
    DAT_PROVIDER_INFO info;
    DAT_IA_HANDLE ia;
    DAT_COUNT before = listed();
    memset(&info, 0, sizeof info);
    strcpy(info.ia_name, "own");
    info.dapl_version_major = 1;
    info.dapl_version_minor = 2;
    guest_fill();
    OK(dat_registry_add_provider(&guest_table, &info));
    CHECK(listed() == before + 1 && info_of("own"));
    OK(opened("own", DAT_FALSE, &ia));
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_THREAD_SAFETY_NOT_FOUND, opened("own", DAT_TRUE, &ia));
    of_a_guest(ia);
    EXPECT_CODE(DAT_PROVIDER_IN_USE, DAT_NO_SUBTYPE, dat_registry_remove_provider(&guest_table, &info));
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    free(ia);
    OK(dat_registry_remove_provider(&guest_table, &info));
    CHECK(listed() == before);
    EXPECT_CODE(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED, opened("own", DAT_FALSE, &ia));
    /* No other provider can register the name of a device. */
    if (info_of("mock0")) {
        info = *info_of("mock0");
        EXPECT(DAT_PROVIDER_ALREADY_REGISTERED, dat_registry_add_provider(&guest_table, &info));
    }
}

static void *opens(void *unused)
{
    int round;
    (void)unused;
    for (round = 0; round < 5; round++) {
        DAT_IA_HANDLE ia;
        OK(opened("mock0", DAT_FALSE, &ia));
        CHECK(listed() >= 1);
        OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    }
    return NULL;
}

/* Threads that use the registry for the first time at once. */
static void at_a_time(void)
{
    pthread_t threads[4];
    int index;
    for (index = 0; index < 4; index++) {
        CHECK(pthread_create(&threads[index], NULL, opens, NULL) == 0);
    }
    for (index = 0; index < 4; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
}

int main(int count, char **arguments)
{
    CHECK(count >= 2);
    if (strcmp(arguments[1], "found") == 0) {
        found();
        own();
    } else if (strcmp(arguments[1], "configured") == 0) {
        configured(arguments[2]);
        own();
    } else if (strcmp(arguments[1], "unreadable") == 0) {
        unreadable();
    } else {
        CHECK(strcmp(arguments[1], "threads") == 0);
        at_a_time();
    }
    return 0;
}
