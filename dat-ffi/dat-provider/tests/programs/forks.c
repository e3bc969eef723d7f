/* Children of a process whose other threads are in all kinds of calls: no call of a child waits
 * for a thread of its parent. GEN-03, GEN-04, IAO-01 */
#include "check.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define CHILDREN 300

static struct side side;
static atomic_int over;

/* The current call of a child. */
static const char *volatile now = "none";
#define NOW(call) (now = #call, call)

static void hangs(int unused)
{
    (void)unused;
    (void)!write(2, "a child hangs in ", 17);
    (void)!write(2, now, strlen(now));
    (void)!write(2, "\n", 1);
    _exit(3);
}

static void open_and_close(void)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE zone;
    OK(NOW(dat_ia_open("mock0", 8, &async, &ia)));
    OK(NOW(dat_pz_create(ia, &zone)));
    OK(NOW(dat_pz_free(zone)));
    OK(NOW(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG)));
}

static void *opens(void *unused)
{
    DAT_EVD_HANDLE async;
    DAT_IA_HANDLE ia;
    (void)unused;
    while (!over) {
        async = DAT_HANDLE_NULL;
        OK(dat_ia_open("mock0", 8, &async, &ia));
        OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    }
    return NULL;
}

static void *makes(void *unused)
{
    DAT_PZ_HANDLE zone;
    DAT_EVD_HANDLE evd;
    DAT_EVENT event;
    DAT_COUNT more;
    (void)unused;
    while (!over) {
        OK(dat_pz_create(side.ia, &zone));
        OK(dat_evd_create(side.ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evd));
        EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(evd, 10, 1, &event, &more));
        OK(dat_evd_free(evd));
        OK(dat_pz_free(zone));
    }
    return NULL;
}

static void *asks(void *unused)
{
    DAT_PROVIDER_INFO room[4], *places[4] = {&room[0], &room[1], &room[2], &room[3]};
    const char *type, *subtype;
    DAT_COUNT count;
    (void)unused;
    while (!over) {
        OK(dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP, &type, &subtype));
        (void)dat_registry_list_providers(4, &count, places);
        EXPECT(DAT_PROVIDER_NOT_FOUND, dat_ia_open("nowhere", 8, &(DAT_EVD_HANDLE){DAT_HANDLE_NULL}, &(DAT_IA_HANDLE){NULL}));
    }
    return NULL;
}

static void child(void)
{
    DAT_PROVIDER_INFO room[4], *places[4] = {&room[0], &room[1], &room[2], &room[3]};
    const char *type, *subtype;
    DAT_COUNT count, more;
    DAT_EVENT event;
    DAT_PZ_HANDLE zone;
    signal(SIGALRM, hangs);
    alarm(PATIENCE / SECOND);
    EXPECT(DAT_INVALID_HANDLE, NOW(dat_pz_create(side.ia, &zone)));
    EXPECT(DAT_INVALID_HANDLE, NOW(dat_pz_free(side.zone)));
    EXPECT(DAT_INVALID_HANDLE, NOW(dat_evd_wait(side.requests, 0, 1, &event, &more)));
    EXPECT(DAT_INVALID_HANDLE, NOW(dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG)));
    OK(NOW(dat_strerror(DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP, &type, &subtype)));
    (void)NOW(dat_registry_list_providers(4, &count, places));
    open_and_close();
    _exit(0);
}

int main(void)
{
    void *(*const calls[])(void *) = {opens, makes, asks};
    pthread_t threads[3];
    int round, at, status;
    side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    for (at = 0; at < 3; at++)
        CHECK(pthread_create(&threads[at], NULL, calls[at], NULL) == 0);
    for (round = 0; round < CHILDREN; round++) {
        pid_t process = fork();
        CHECK(process >= 0);
        if (process == 0)
            child();
        CHECK(waitpid(process, &status, 0) == process);
        CHECK(status == 0);
    }
    over = 1;
    for (at = 0; at < 3; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    free_side(&side);
    return 0;
}
