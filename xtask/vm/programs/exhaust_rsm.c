/*
 * Exhausts the resources of remote shared memory.
 *
 * exhaust_rsm memory BYTES ROUNDS: makes segments and handles of BYTES each until one is refused for lack of resources. Each freed one must make room for exactly one.
 * exhaust_rsm descriptors: gets the controller and exports a segment, with more and more free descriptors. Refusals must name missing resources, and with enough
 * descriptors all calls must succeed.
 */
#include "../../../dat-ffi/librsm/tests/programs/check.h"

#include <fcntl.h>
#include <sys/resource.h>

#define MOST 4096
#define DESCRIPTORS 64

static unsigned long tried, refused;

static int granted(int code, const char *call)
{
    tried++;
    if (code == RSM_SUCCESS)
        return 1;
    if (code != RSMERR_INSUFFICIENT_RESOURCES) {
        fprintf(stderr, "%s returned %d\n", call, code);
        exit(1);
    }
    if (refused++ == 0)
        printf("%s: insufficient resources\n", call);
    return 0;
}

static void memory(size_t bytes, int rounds)
{
    static rsm_localmemory_handle_t handles[MOST];
    rsmapi_controller_handle_t controller;
    rsm_memseg_export_handle_t export;
    unsigned char *all = pages(bytes * MOST / PAGE);
    int count = 0, round, at;
    OK(rsm_get_controller("verbs0", &controller));
#define HANDLE(number) \
    granted(rsm_create_localmemory_handle(controller, &handles[number], (char *)all + (size_t)(number) * bytes, bytes), "rsm_create_localmemory_handle")
    while (count < MOST && HANDLE(count))
        count++;
    CHECK(count < MOST);
    CHECK(!granted(rsm_memseg_export_create(controller, &export, all, bytes, 0), "rsm_memseg_export_create"));
    for (round = 0; round < rounds && count > 0; round++) {
        at = rand() % count;
        OK(rsm_free_localmemory_handle(controller, handles[at]));
        CHECK(granted(rsm_memseg_export_create(controller, &export, all, bytes, 0), "rsm_memseg_export_create"));
        CHECK(!HANDLE(at));
        OK(rsm_memseg_export_destroy(export));
        CHECK(HANDLE(at));
    }
    for (at = 0; at < count; at++)
        OK(rsm_free_localmemory_handle(controller, handles[at]));
    OK(rsm_release_controller(controller));
    printf("registered %zu\n", count * bytes);
}

/* Gets the controller and publishes a segment; returns 1 if all calls succeed. */
static int everything(unsigned char *segment)
{
    rsmapi_controller_handle_t controller;
    rsm_memseg_export_handle_t export;
    rsm_memseg_id_t id = 0;
    int there = 0;
    if (!granted(rsm_get_controller("verbs0", &controller), "rsm_get_controller"))
        return 0;
    if (granted(rsm_memseg_export_create(controller, &export, segment, PAGE, 0), "rsm_memseg_export_create")) {
        there = granted(rsm_memseg_export_publish(export, &id, NULL, 0), "rsm_memseg_export_publish");
        if (there)
            OK(rsm_memseg_export_unpublish(export));
        OK(rsm_memseg_export_destroy(export));
    }
    OK(rsm_release_controller(controller));
    return there;
}

static void descriptors(void)
{
    struct rlimit limit;
    unsigned char *segment = pages(1);
    int occupied[1024], count, spare, at, last = 0;
    limit.rlim_cur = limit.rlim_max = 256;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (spare = 0; spare < DESCRIPTORS; spare++) {
        for (count = 0; (occupied[count] = open("/dev/null", O_RDONLY)) != -1; count++)
            ;
        for (at = 0; at < spare && count > 0; at++)
            close(occupied[--count]);
        last = everything(segment);
        while (count > 0)
            close(occupied[--count]);
    }
    CHECK(last);
    free(segment);
}

int main(int count, char **arguments)
{
    CHECK(count >= 2);
    if (strcmp(arguments[1], "descriptors") == 0) {
        descriptors();
    } else {
        CHECK(count == 4);
        memory(strtoul(arguments[2], NULL, 0), atoi(arguments[3]));
    }
    printf("tried %lu refused %lu\n", tried, refused);
    return 0;
}
