/* Threads that are cancelled while they wait in a call. The includer has CHECK. */
#ifndef WAITER_H
#define WAITER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
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
    for (rounds = 0; rounds < 60000 && !begun; rounds++)
        usleep(1000);
    CHECK(begun);
    /* The thread most likely sleeps by now; the checks hold before that as well. */
    usleep(20000);
    return waiter;
}

/* Waits until a thread sleeps, whose number is stored here before it goes to sleep. */
static inline void until_asleep(atomic_int *number)
{
    char name[64], line[512];
    const char *state = NULL;
    while (state == NULL || state[2] != 'S') {
        FILE *stat;
        usleep(1000);
        snprintf(name, sizeof name, "/proc/self/task/%d/stat", *number);
        stat = *number == 0 ? NULL : fopen(name, "r");
        if (stat == NULL)
            continue;
        /* The state follows the name of the program in parentheses. */
        state = fgets(line, sizeof line, stat) == NULL ? NULL : strrchr(line, ')');
        fclose(stat);
    }
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
