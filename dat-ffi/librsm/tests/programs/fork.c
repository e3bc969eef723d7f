/* A child's access to its parent's objects, and objects of its own, with other threads of the
 * parent in any call, `fork [CONTROLLER]`. RSMGEN-03, RSMGEN-04 */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>

static const char *name = "loopback";

/* The current call of a child. */
static const char *volatile now = "none";

static void hangs(int unused)
{
    (void)unused;
    (void)!write(2, "a child hangs in ", 17);
    (void)!write(2, now, strlen(now));
    (void)!write(2, "\n", 1);
    _exit(3);
}

#define REFUSED(code, call)                                                                                             \
    do {                                                                                                                \
        now = #call;                                                                                                    \
        EXPECT(code, call);                                                                                             \
    } while (0)

/* On a device only one process of a node listens, here the parent. A controller of the child
 * imports its segment. */
static void import_of_parent(const struct pair *pair)
{
    rsmapi_controller_handle_t controller;
    rsm_memseg_export_handle_t export;
    rsm_memseg_import_handle_t import;
    rsmapi_barrier_t barrier;
    unsigned char *memory = pages(1), bytes[64], back[64];
    now = "the calls for a segment of its parent";
    OK(rsm_get_controller((char *)name, &controller));
    OK(rsm_memseg_export_create(controller, &export, memory, PAGE, 0));
    OK(rsm_memseg_import_connect(controller, own_node(), pair->id, RSM_PERM_RDWR, &import));
    OK(rsm_memseg_import_init_barrier(import, RSM_BAR_DEFAULT, &barrier));
    fill(bytes, sizeof bytes, (unsigned)getpid());
    OK(rsm_memseg_import_put(import, 1024, bytes, sizeof bytes));
    OK(rsm_memseg_import_get(import, 1024, back, sizeof back));
    CHECK(memcmp(bytes, back, sizeof bytes) == 0);
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_import_disconnect(import));
    OK(rsm_memseg_export_destroy(export));
    OK(rsm_release_controller(controller));
    free(memory);
}

static void child(const struct pair *pair)
{
    struct pair own;
    rsmapi_controller_attr_t attributes;
    rsm_memseg_id_t id = 0;
    uint8_t item = 0;
    REFUSED(RSMERR_NOT_CREATOR, rsm_memseg_export_publish(pair->export, &id, NULL, 0));
    REFUSED(RSMERR_NOT_CREATOR, rsm_memseg_export_republish(pair->export, NULL, 0));
    REFUSED(RSMERR_NOT_CREATOR, rsm_memseg_export_unpublish(pair->export));
    REFUSED(RSMERR_NOT_CREATOR, rsm_memseg_export_rebind(pair->export, pair->memory, 0, PAGE));
    REFUSED(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_destroy(pair->export));
    REFUSED(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_disconnect(pair->import));
    REFUSED(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_unpublish((rsm_memseg_export_handle_t)pair->import));
    REFUSED(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get8(pair->import, 0, &item, 1));
    REFUSED(RSMERR_BAD_SEG_HNDL, rsm_intr_signal_post(pair->export, 0));
    REFUSED(RSMERR_BAD_CTLR_HNDL, rsm_get_controller_attr(pair->controller, &attributes));
    REFUSED(RSMERR_BAD_CTLR_HNDL, rsm_release_controller(pair->controller));
    if (strcmp(name, "loopback") != 0) {
        import_of_parent(pair);
        return;
    }
    now = "the calls for a segment of its own";
    own = open_pair(1, 0, RSM_PERM_RDWR);
    OK(rsm_intr_signal_post(own.import, 0));
    OK(rsm_intr_signal_wait(own.export, PATIENCE));
    EXPECT(RSMERR_NOT_CREATOR, rsm_memseg_export_unpublish(pair->export));
    close_pair(&own);
}

static volatile int over;

static void *asks(void *unused)
{
    (void)unused;
    while (!over) {
        rsmapi_controller_handle_t controller;
        (void)own_node();
        OK(rsm_get_controller("loopback", &controller));
        OK(rsm_release_controller(controller));
    }
    return NULL;
}

static void *busy(void *argument)
{
    const struct pair *pair = argument;
    while (!over) {
        OK(rsm_intr_signal_post(pair->import, RSM_SIGPOST_NO_ACCUMULATE));
        (void)rsm_intr_signal_wait(pair->export, 1);
    }
    return NULL;
}

/* Transfers bytes to the segment and back. */
static void move(struct pair *pair, int round)
{
    unsigned char bytes[64], back[64];
    fill(bytes, sizeof bytes, round);
    OK(rsm_memseg_import_put(pair->import, 8, bytes, sizeof bytes));
    OK(rsm_memseg_import_get(pair->import, 8, back, sizeof back));
    CHECK(memcmp(bytes, back, sizeof bytes) == 0 && memcmp(pair->memory + 8, bytes, sizeof bytes) == 0);
}

int main(int count, char **arguments)
{
    struct pair pair;
    rsmapi_barrier_t barrier;
    pthread_t threads[3];
    int round, at, status, rounds = 5;
    if (count > 1)
        name = arguments[1];
    if (count > 2)
        rounds = atoi(arguments[2]);
    pair = open_pair_of(name, 1, RSM_ALLOW_REBIND, RSM_PERM_RDWR);
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier));
    for (at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, busy, &pair) == 0);
    CHECK(pthread_create(&threads[2], NULL, asks, NULL) == 0);
    /* Other threads may hold any lock. */
    for (round = 0; round < rounds; round++) {
        pid_t process = fork();
        CHECK(process >= 0);
        if (process == 0) {
            pid_t grandchild;
            signal(SIGALRM, hangs);
            alarm(2 * PATIENCE / 1000);
            child(&pair);
            grandchild = fork();
            CHECK(grandchild >= 0);
            if (grandchild == 0) {
                child(&pair);
                _exit(0);
            }
            CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
            (round % 2 ? exit : _exit)(0);
        }
        move(&pair, round);
        CHECK(waitpid(process, &status, 0) == process);
        CHECK(status == 0);
        move(&pair, ~round);
    }
    over = 1;
    for (at = 0; at < 3; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    /* The parent still has all its objects. */
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_export_rebind(pair.export, pair.memory, 0, PAGE));
    close_pair(&pair);
    return 0;
}
