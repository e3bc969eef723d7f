/* Threads that are cancelled while they wait in a call. The includer has CHECK. */
#ifndef WAITER_H
#define WAITER_H

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* Set by a thread right before it waits. */
static atomic_int begun;

/* Starts a thread, and returns once it has begun. */
static inline pthread_t begin(void *(*wait)(void *))
{
    pthread_t waiter;
    int rounds;
    begun = 0;
    CHECK(pthread_create(&waiter, NULL, wait, NULL) == 0);
    for (rounds = 0; rounds < 20000 && !begun; rounds++)
        usleep(1000);
    CHECK(begun);
    /* The thread most likely sleeps by now; the checks hold before that as well. */
    usleep(20000);
    return waiter;
}

/* Cancels a thread and checks that the cancellation ended it. */
static inline void cancel(pthread_t waiter)
{
    void *result = NULL;
    CHECK(pthread_cancel(waiter) == 0);
    CHECK(pthread_join(waiter, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
}

#endif
