/* What a child has of its parent, and for itself. RSMGEN-03, RSMGEN-04 */
#include "check.h"
#include <sys/wait.h>

static void child(const struct pair *pair)
{
    struct pair own;
    rsmapi_controller_attr_t attributes;
    rsm_memseg_id_t id = 0;
    uint8_t item = 0;
    EXPECT(RSMERR_NOT_CREATOR, rsm_memseg_export_publish(pair->export, &id, NULL, 0));
    EXPECT(RSMERR_NOT_CREATOR, rsm_memseg_export_republish(pair->export, NULL, 0));
    EXPECT(RSMERR_NOT_CREATOR, rsm_memseg_export_unpublish(pair->export));
    EXPECT(RSMERR_NOT_CREATOR, rsm_memseg_export_rebind(pair->export, pair->memory, 0, PAGE));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_destroy(pair->export));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_disconnect(pair->import));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_unpublish((rsm_memseg_export_handle_t)pair->import));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get8(pair->import, 0, &item, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_intr_signal_post(pair->export, 0));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_get_controller_attr(pair->controller, &attributes));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_release_controller(pair->controller));
    own = open_pair(1, 0, RSM_PERM_RDWR);
    OK(rsm_intr_signal_post(own.import, 0));
    OK(rsm_intr_signal_wait(own.export, 10000));
    EXPECT(RSMERR_NOT_CREATOR, rsm_memseg_export_unpublish(pair->export));
    close_pair(&own);
}

static volatile int over;

static void *busy(void *argument)
{
    const struct pair *pair = argument;
    while (!over) {
        OK(rsm_intr_signal_post(pair->import, RSM_SIGPOST_NO_ACCUMULATE));
        (void)rsm_intr_signal_wait(pair->export, 1);
    }
    return NULL;
}

int main(void)
{
    struct pair pair = open_pair(1, RSM_ALLOW_REBIND, RSM_PERM_RDWR);
    pthread_t threads[2];
    int round, at, status;
    for (at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, busy, &pair) == 0);
    /* While other threads hold whatever they hold. */
    for (round = 0; round < 5; round++) {
        pid_t process = fork();
        CHECK(process >= 0);
        if (process == 0) {
            pid_t grandchild;
            child(&pair);
            grandchild = fork();
            CHECK(grandchild >= 0);
            if (grandchild == 0) {
                child(&pair);
                _exit(0);
            }
            CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
            _exit(0);
        }
        CHECK(waitpid(process, &status, 0) == process);
        CHECK(status == 0);
    }
    over = 1;
    for (at = 0; at < 2; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    /* Nothing of the parent's has gone. */
    OK(rsm_memseg_export_rebind(pair.export, pair.memory, 0, PAGE));
    close_pair(&pair);
    return 0;
}
