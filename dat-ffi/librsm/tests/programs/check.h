/* Shared by the test programs: checks that print their line, memory, and a segment with a
 * connection. */
#ifndef CHECK_H
#define CHECK_H

#include <rsmapi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE 4096
/* Unmapped memory that stays so: the system maps no pages so low by itself. */
#define HOLE ((unsigned char *)(uintptr_t)PAGE)
#define SEGMENT 0x400000
/* The longest time that anything may take, in milliseconds. Only a failure takes so long. */
#define PATIENCE 60000

/* Ends the program unless a call returned this code. */
#define EXPECT(code, call)                                                                                              \
    do {                                                                                                                \
        int returned_ = (call);                                                                                         \
        if (returned_ != (code)) {                                                                                      \
            fprintf(stderr, "%s:%d: %s returned %d and not %s\n", __FILE__, __LINE__, #call, returned_, #code);         \
            exit(1);                                                                                                    \
        }                                                                                                               \
    } while (0)

#define OK(call) EXPECT(RSM_SUCCESS, call)

#define CHECK(condition)                                                                                                \
    do {                                                                                                                \
        if (!(condition)) {                                                                                             \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                               \
            exit(1);                                                                                                    \
        }                                                                                                               \
    } while (0)

/* Returns pages of zeros. */
static inline unsigned char *pages(size_t count)
{
    void *memory = NULL;
    CHECK(posix_memalign(&memory, PAGE, count * PAGE) == 0);
    memset(memory, 0, count * PAGE);
    return memory;
}

/* Returns the number of this node. */
static inline rsm_node_id_t own_node(void)
{
    rsm_topology_t *topology = NULL;
    rsm_node_id_t node;
    OK(rsm_get_interconnect_topology(&topology));
    node = topology->topology_hdr.local_nodeid;
    rsm_free_interconnect_topology(topology);
    return node;
}

/* A segment and a connection to it in the same process. */
struct pair {
    rsmapi_controller_handle_t controller;
    rsm_memseg_export_handle_t export;
    rsm_memseg_import_handle_t import;
    rsm_memseg_id_t id;
    unsigned char *memory;
    size_t length;
};

static inline struct pair open_pair_of(const char *controller, size_t count, unsigned int flags, rsm_permission_t permission)
{
    struct pair pair;
    memset(&pair, 0, sizeof pair);
    pair.length = count * PAGE;
    pair.memory = pages(count);
    OK(rsm_get_controller((char *)controller, &pair.controller));
    OK(rsm_memseg_export_create(pair.controller, &pair.export, pair.memory, pair.length, flags));
    OK(rsm_memseg_export_publish(pair.export, &pair.id, NULL, 0));
    OK(rsm_memseg_import_connect(pair.controller, own_node(), pair.id, permission, &pair.import));
    return pair;
}

static inline struct pair open_pair(size_t count, unsigned int flags, rsm_permission_t permission)
{
    return open_pair_of("loopback", count, flags, permission);
}

static inline void close_pair(struct pair *pair)
{
    OK(rsm_memseg_import_disconnect(pair->import));
    OK(rsm_memseg_export_unpublish(pair->export));
    OK(rsm_memseg_export_destroy(pair->export));
    OK(rsm_release_controller(pair->controller));
    free(pair->memory);
}

static inline void fill(unsigned char *bytes, size_t length, unsigned seed)
{
    size_t at;
    for (at = 0; at < length; at++)
        bytes[at] = (unsigned char)(at * 7 + seed);
}

#endif
