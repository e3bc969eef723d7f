/* Remote shared memory: exports a segment, imports it in the same process, and writes to it.
 *
 *     cc put.c $(pkg-config --cflags --libs rsm) -o put && ./put */
#include <rsmapi.h>
#include <stdio.h>
#include <stdlib.h>

#define LENGTH 65536

static void check(int code, const char *call)
{
    if (code != RSM_SUCCESS) {
        fprintf(stderr, "%s: error %d\n", call, code);
        exit(1);
    }
}
#define CHECK(call) check((call), #call)

int main(void)
{
    char name[] = "loopback", said[] = "put into a segment", *memory = NULL;
    rsmapi_controller_handle_t controller;
    rsm_memseg_export_handle_t segment;
    rsm_memseg_import_handle_t import;
    rsm_memseg_id_t id = 0;
    rsmapi_barrier_t barrier;
    rsm_topology_t *topology;
    rsm_node_id_t node;

    /* Segments begin and end at page boundaries. */
    if (posix_memalign((void **)&memory, 4096, LENGTH) != 0) {
        return 1;
    }
    CHECK(rsm_get_interconnect_topology(&topology));
    node = topology->topology_hdr.local_nodeid;
    rsm_free_interconnect_topology(topology);

    /* The exporter, which has the memory. */
    CHECK(rsm_get_controller(name, &controller));
    CHECK(rsm_memseg_export_create(controller, &segment, memory, LENGTH, 0));
    CHECK(rsm_memseg_export_publish(segment, &id, NULL, 0));

    /* The importer, which needs a barrier before its first put or get. */
    CHECK(rsm_memseg_import_connect(controller, node, id, RSM_PERM_RDWR, &import));
    CHECK(rsm_memseg_import_init_barrier(import, RSM_BARRIER_SEGMENT, &barrier));
    CHECK(rsm_memseg_import_put(import, 100, said, sizeof said));
    printf("%s\n", memory + 100);

    CHECK(rsm_memseg_import_destroy_barrier(&barrier));
    CHECK(rsm_memseg_import_disconnect(import));
    CHECK(rsm_memseg_export_unpublish(segment));
    CHECK(rsm_memseg_export_destroy(segment));
    CHECK(rsm_release_controller(controller));
    free(memory);
    return 0;
}
