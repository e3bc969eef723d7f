/* What a child has of its parent's adapters, and for itself, `fork [ADAPTER]`. GEN-03, GEN-04 */
#include "check.h"

#include <stdatomic.h>
#include <sys/wait.h>

static struct side side;
static DAT_CNO_HANDLE notifier;
static const char *name = "mock0";

/* Every call on what the parent has open is refused, and one's own adapter works. */
static void child(void)
{
    struct side own;
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_CONTEXT context = {0};
    DAT_HANDLE made = NULL;
    DAT_HANDLE_TYPE type;
    DAT_LMR_TRIPLET whole = piece(&side, 0, 64);
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    EXPECT(DAT_INVALID_HANDLE, dat_pz_create(side.ia, &made));
    EXPECT(DAT_INVALID_HANDLE, dat_cno_wait(notifier, 0, &made));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_wait(side.requests, 0, 1, &event, &more));
    EXPECT(DAT_INVALID_HANDLE, dat_evd_dequeue(side.requests, &event));
    EXPECT(DAT_INVALID_HANDLE, dat_ep_post_recv(side.endpoint, 1, &whole, context, 0));
    EXPECT(DAT_INVALID_HANDLE, dat_ep_disconnect(side.endpoint, DAT_CLOSE_ABRUPT_FLAG));
    EXPECT(DAT_INVALID_HANDLE, dat_lmr_free(side.region));
    EXPECT(DAT_INVALID_HANDLE, dat_pz_free(side.zone));
    EXPECT(DAT_INVALID_HANDLE, dat_get_handle_type(side.ia, &type));
    EXPECT(DAT_INVALID_HANDLE, dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG));
    own = open_side(name, DAT_MEM_PRIV_ALL_FLAG);
    /* No handle of one's own is one of the parent's. */
    CHECK(own.ia != side.ia && own.zone != side.zone && own.region != side.region);
    EXPECT(DAT_INVALID_HANDLE, dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG));
    EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(own.requests, 1000, 1, &event, &more));
    CHECK(more == 0);
    free_side(&own);
}

static atomic_int over;

/* Holds whatever locks calls hold. */
static void *busy(void *unused)
{
    DAT_PZ_HANDLE zone;
    DAT_EVENT event;
    DAT_COUNT more;
    (void)unused;
    while (!over) {
        OK(dat_pz_create(side.ia, &zone));
        OK(dat_pz_free(zone));
        EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(side.receives, 10, 1, &event, &more));
    }
    return NULL;
}

static void forked(int depth)
{
    int status;
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        alarm(60);
        child();
        if (depth > 1)
            forked(depth - 1);
        _exit(0);
    }
    CHECK(waitpid(process, &status, 0) == process);
    CHECK(status == 0);
}

int main(int count, char **arguments)
{
    DAT_OS_WAIT_PROXY_AGENT none = DAT_OS_WAIT_PROXY_AGENT_NULL;
    DAT_LMR_TRIPLET whole;
    pthread_t thread;
    int round;
    if (count > 1)
        name = arguments[1];
    side = open_side(name, DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_cno_create(side.ia, none, &notifier));
    OK(dat_ep_create(side.ia, side.zone, side.receives, side.requests, side.connections, NULL, &side.endpoint));
    forked(2);
    CHECK(pthread_create(&thread, NULL, busy, NULL) == 0);
    for (round = 0; round < 20; round++)
        forked(1);
    over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    /* Nothing of the parent's has gone. */
    whole = piece(&side, 0, 64);
    OK(dat_ep_post_recv(side.endpoint, 1, &whole, (DAT_CONTEXT){0}, 0));
    OK(dat_ep_free(side.endpoint));
    OK(dat_cno_free(notifier));
    free_side(&side);
    return 0;
}
