/*
 * Exhausts memory that may be registered, or files that may be open, repeatedly.
 *
 * exhaust ADAPTER memory BYTES ROUNDS: registers regions of BYTES each until one is refused for lack of regions. Each freed region must make room for exactly one.
 * exhaust ADAPTER descriptors [ENOUGH]: opens the adapter and all objects of a connection, with more and more free descriptors. Refusals must name missing
 * resources, and with ENOUGH descriptors all calls must succeed.
 *
 * Prints the numbers of attempts and of refusals.
 *
 * IAO-03, LMC-06, GEN-01
 */
#include "../../../dat-ffi/dat-provider/tests/programs/check.h"

#include <fcntl.h>
#include <sys/resource.h>

#define MOST 4096
#define DESCRIPTORS 64

static unsigned long tried, refused;

/* Counts a call that may be refused only with this type and subtype; returns 1 if it succeeded. */
static int granted(DAT_RETURN code, DAT_RETURN_TYPE type, DAT_UINT32 subtype, const char *call)
{
    const char *major = "", *minor = "";
    tried++;
    if (code == DAT_SUCCESS)
        return 1;
    OK(dat_strerror(code, &major, &minor));
    if (DAT_GET_TYPE(code) != (DAT_UINT32)type || (subtype != 0 && (code & 0xffff) != subtype)) {
        fprintf(stderr, "%s returned %#x: %s, %s\n", call, code, major, minor);
        exit(1);
    }
    if (refused++ == 0)
        printf("%s: %s, %s\n", call, major, minor);
    return 0;
}

static void memory(const char *adapter, size_t bytes, int rounds)
{
    static DAT_LMR_HANDLE regions[MOST];
    char *all = aligned_alloc(4096, bytes * MOST);
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE zone;
    DAT_REGION_DESCRIPTION description;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
    DAT_VLEN size;
    DAT_VADDR address;
    int count = 0, round, at;
    CHECK(all != NULL);
    OK(dat_ia_open((DAT_NAME_PTR)adapter, 8, &async, &ia));
    OK(dat_pz_create(ia, &zone));
#define REGISTER(number)                                                                                                \
    (description.for_va = all + (size_t)(number) * bytes,                                                               \
     granted(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, description, bytes, zone, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA,  \
                            &regions[number], &local, &remote, &size, &address),                                        \
             DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION, "dat_lmr_create"))
    while (count < MOST && REGISTER(count))
        count++;
    CHECK(count < MOST);
    for (round = 0; round < rounds && count > 0; round++) {
        at = rand() % count;
        OK(dat_lmr_free(regions[at]));
        CHECK(REGISTER(at));
        CHECK(!REGISTER(count));
    }
    for (at = 0; at < count; at++)
        OK(dat_lmr_free(regions[at]));
    OK(dat_pz_free(zone));
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    printf("registered %zu\n", count * bytes);
}

/* Opens an adapter and all objects of a connection; returns 1 if all calls succeed. */
static int everything(const char *adapter)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, events;
    DAT_CNO_HANDLE cno;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE zone;
    DAT_EP_HANDLE endpoint;
    DAT_PSP_HANDLE listener;
    DAT_CONN_QUAL qualifier = 5017;
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN code = dat_ia_open((DAT_NAME_PTR)adapter, 8, &async, &ia);
    int steps = 0;
#define STEP(call)                                                                                                      \
    if (steps >= 0)                                                                                                     \
        steps = granted(call, DAT_INSUFFICIENT_RESOURCES, 0, #call) ? steps + 1 : -1
    if (!granted(code, DAT_INSUFFICIENT_RESOURCES, 0, "dat_ia_open"))
        return 0;
    STEP(dat_pz_create(ia, &zone));
    STEP(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    STEP(dat_evd_create(ia, 16, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG, &events));
    STEP(dat_ep_create(ia, zone, events, events, events, NULL, &endpoint));
    STEP(dat_psp_create(ia, qualifier, events, DAT_PSP_CONSUMER_FLAG, &listener));
    if (steps >= 0) {
        /* A wait needs an object to sleep on. */
        code = dat_evd_wait(events, 1000, 1, &event, &more);
        steps = DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED || granted(code, DAT_INSUFFICIENT_RESOURCES, 0, "dat_evd_wait") ? 6 : -1;
    }
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    return steps == 6;
}

static int open_files(void)
{
    int file, count = 0;
    for (file = 0; file < 1024; file++)
        count += fcntl(file, F_GETFD) != -1;
    return count;
}

static void descriptors(const char *adapter, int enough)
{
    struct rlimit limit;
    int occupied[1024], count, spare, at, last = 0, before;
    limit.rlim_cur = limit.rlim_max = 256;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (spare = 0; spare < DESCRIPTORS; spare++) {
        for (count = 0; (occupied[count] = open("/dev/null", O_RDONLY)) != -1; count++)
            ;
        for (at = 0; at < spare && count > 0; at++)
            close(occupied[--count]);
        last = everything(adapter);
        while (count > 0)
            close(occupied[--count]);
        CHECK(last || spare < enough);
    }
    /* The libraries have opened all files that they keep open. */
    before = open_files();
    for (at = 0; at < 20; at++)
        CHECK(everything(adapter));
    CHECK(open_files() == before);
}

int main(int count, char **arguments)
{
    CHECK(count >= 3);
    if (strcmp(arguments[2], "descriptors") == 0) {
        descriptors(arguments[1], count > 3 ? atoi(arguments[3]) : DESCRIPTORS - 1);
    } else {
        CHECK(count == 5);
        memory(arguments[1], strtoul(arguments[3], NULL, 0), atoi(arguments[4]));
    }
    printf("tried %lu refused %lu\n", tried, refused);
    return 0;
}
