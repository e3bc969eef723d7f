/* Threads that are cancelled in waits for signals: they end, and take no signal. */
#include "check.h"
#include "waiter.h"

static struct pair pair;

static void *wait_for_signal(void *unused)
{
    (void)unused;
    begun++;
    (void)rsm_intr_signal_wait(pair.export, -1);
    return NULL;
}

static void *wait_for_descriptor(void *unused)
{
    struct pollfd entry;
    int count;
    (void)unused;
    OK(rsm_memseg_get_pollfd(pair.export, &entry));
    begun++;
    (void)rsm_intr_signal_wait_pollfd(&entry, 1, -1, &count);
    return NULL;
}

/* Disables cancellation and ends by a signal. */
static void *wait_undisturbed(void *unused)
{
    int before;
    (void)unused;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0);
    begun++;
    OK(rsm_intr_signal_wait(pair.export, -1));
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0);
    CHECK(before == PTHREAD_CANCEL_DISABLE);
    return &begun;
}

int main(void)
{
    void *(*const waits[])(void *) = {wait_for_signal, wait_for_descriptor};
    void *result = NULL;
    pthread_t waiter;
    int round;
    pair = open_pair(1, 0, RSM_PERM_RDWR);
    for (round = 0; round < 6; round++) {
        cancel(begin(waits[round % 2]));
        OK(rsm_intr_signal_post(pair.import, 0));
        OK(rsm_intr_signal_wait(pair.export, PATIENCE));
        EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait(pair.export, 0));
    }
    waiter = begin(wait_undisturbed);
    CHECK(pthread_cancel(waiter) == 0);
    usleep(250000);
    OK(rsm_intr_signal_post(pair.import, 0));
    CHECK(pthread_join(waiter, &result) == 0);
    CHECK(result == &begun);
    /* Each thread that polled had got the descriptor. */
    for (round = 0; round < 3; round++)
        OK(rsm_memseg_release_pollfd(pair.export));
    OK(rsm_memseg_import_disconnect(pair.import));
    OK(rsm_memseg_export_destroy(pair.export));
    OK(rsm_release_controller(pair.controller));
    free(pair.memory);
    return 0;
}
