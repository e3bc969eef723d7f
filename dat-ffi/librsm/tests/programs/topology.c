/* The topology, and the ids of applications. */
#include "check.h"

/* RSMTP-01..04, RSMGEN-06 */
static void topology(rsm_node_id_t node)
{
    rsm_topology_t *found = (rsm_topology_t *)0x5555, *second;
    rsm_connections_t *connections;
    rsmapi_controller_handle_t controller;
    unsigned at;
    int opened;
    EXPECT(RSMERR_BAD_TOPOLOGY_PTR, rsm_get_interconnect_topology(NULL));
    for (opened = 0; opened < 2; opened++) {
        OK(rsm_get_interconnect_topology(&found));
        CHECK((uintptr_t)found % 8 == 0);
        CHECK(found->topology_hdr.local_nodeid == node);
        CHECK(found->topology_hdr.local_cntlr_count >= 1);
        for (at = 0; at < found->topology_hdr.local_cntlr_count; at++) {
            connections = found->connections[at];
            CHECK((uintptr_t)connections % 8 == 0);
            CHECK(memchr(connections->hdr.cntlr_name, 0, RSM_MAXNAMELEN) != NULL);
            CHECK(connections->hdr.remote_cntlr_count >= 1);
            OK(rsm_get_controller(connections->hdr.cntlr_name, &controller));
            OK(rsm_release_controller(controller));
        }
        connections = found->connections[found->topology_hdr.local_cntlr_count - 1];
        CHECK(strcmp(connections->hdr.cntlr_name, "loopback") == 0);
        CHECK(connections->hdr.remote_cntlr_count == 1);
        CHECK(connections->remote_cntlr[0].remote_nodeid == node);
        CHECK(strcmp(connections->remote_cntlr[0].remote_cntlrname, "loopback") == 0);
        CHECK(connections->remote_cntlr[0].remote_hwaddr == connections->hdr.local_hwaddr);
        CHECK(connections->remote_cntlr[0].connection_state == RSM_CONNECTION_ACTIVE);
        OK(rsm_get_interconnect_topology(&second));
        CHECK(second != found);
        rsm_free_interconnect_topology(found);
        rsm_free_interconnect_topology(found);
        rsm_free_interconnect_topology(second);
    }
    rsm_free_interconnect_topology(NULL);
}

static void write_file(const char *text)
{
    FILE *file = fopen("rsm.segmentid", "w");
    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK(fclose(file) == 0);
}

/* RSMID-01..03 */
static void ids(void)
{
    rsm_memseg_id_t base = 77;
    uint32_t length = 78;
    EXPECT(RSMERR_BAD_ADDR, rsm_get_segmentid_range(NULL, &base, &length));
    EXPECT(RSMERR_BAD_ADDR, rsm_get_segmentid_range("web", NULL, &length));
    EXPECT(RSMERR_BAD_ADDR, rsm_get_segmentid_range("web", &base, NULL));
    (void)remove("rsm.segmentid");
    EXPECT(RSMERR_BAD_CONF, rsm_get_segmentid_range("web", &base, &length));
    write_file("# ids\n\nreserved\tWeb 0x600000  16\nreserve data 700000 1\nshort\n");
    OK(rsm_get_segmentid_range("web", &base, &length));
    CHECK(base == 0x600000 && length == 16);
    OK(rsm_get_segmentid_range("DATA", &base, &length));
    CHECK(base == 0x700000 && length == 1);
    EXPECT(RSMERR_BAD_CONF, rsm_get_segmentid_range("other", &base, &length));
    write_file("reserved web 0x600000 16\nkeep data 1 1\nreserved hex 0xg 1\n");
    EXPECT(RSMERR_BAD_APPID, rsm_get_segmentid_range("other", &base, &length));
    EXPECT(RSMERR_BAD_APPID, rsm_get_segmentid_range("\xFF", &base, &length));
    EXPECT(RSMERR_BAD_CONF, rsm_get_segmentid_range("data", &base, &length));
    EXPECT(RSMERR_BAD_CONF, rsm_get_segmentid_range("hex", &base, &length));
    CHECK(base == 0x700000 && length == 1);
}

/* RSMGEN-09: the file of nodes is malformed; calls that do not need it succeed. */
static void bad_nodes(void)
{
    rsm_topology_t *found = (rsm_topology_t *)0x5555;
    rsmapi_controller_handle_t controller;
    EXPECT(RSMERR_BAD_CONF, rsm_get_interconnect_topology(&found));
    CHECK(found == NULL);
    EXPECT(RSMERR_BAD_CONF, rsm_get_controller("verbs0", &controller));
    OK(rsm_get_controller("loopback", &controller));
    OK(rsm_release_controller(controller));
}

/* RSMCT-01, RSMCT-05: names of no controller. */
static void absent(void)
{
    rsmapi_controller_handle_t controller = (rsmapi_controller_handle_t)0x5555;
    EXPECT(RSMERR_CTLR_NOT_PRESENT, rsm_get_controller("nowhere", &controller));
    CHECK(controller == NULL);
    EXPECT(RSMERR_CTLR_NOT_PRESENT, rsm_get_controller("\xFF", &controller));
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "bad") == 0) {
        bad_nodes();
        return 0;
    }
    if (count > 1 && strcmp(arguments[1], "ids") == 0) {
        ids();
        return 0;
    }
    if (count > 1 && strcmp(arguments[1], "absent") == 0) {
        absent();
        return 0;
    }
    topology(count > 1 ? (rsm_node_id_t)atoi(arguments[1]) : 1);
    ids();
    return 0;
}
