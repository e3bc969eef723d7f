/* Calls whose allocations fail from the nth on, for n = 0, 1, 2 ... until a call makes at most
 * n. A refused call changes nothing, and succeeds when it is repeated with memory. The includer
 * has CHECK and defines: CODE, the type of return values; DONE(code), true for success;
 * REFUSED(code), true for lack of memory; look(text), which describes the visible state of the
 * program's objects in at most STATE bytes. */
#ifndef SWEEP_H
#define SWEEP_H

#include "scarce.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATE 8192

static void look(char *text);

/* Appends to a description. */
static inline void tell(char *text, const char *format, ...)
{
    size_t length = strlen(text);
    va_list values;
    va_start(values, format);
    CHECK(vsnprintf(text + length, STATE - length, format, values) < (int)(STATE - length));
    va_end(values);
}

struct call {
    const char *name;
    void (*prepare)(void);
    CODE (*call)(void);
    /* Undoes the preparation and a success. */
    void (*undo)(void);
};

static void nothing(void) {}

static sem_t may_begin, is_over;
static CODE returned;

static void *make_call(void *it)
{
    while (sem_wait(&may_begin) != 0) {
    }
    returned = ((const struct call *)it)->call();
    sem_post(&is_over);
    return NULL;
}

/* Makes the call as the first one of a thread, with this number of allocations that succeed. */
static CODE call_without_memory(const struct call *it, long allocations)
{
    pthread_t thread;
    CHECK(sem_init(&may_begin, 0, 0) == 0 && sem_init(&is_over, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, make_call, (void *)(uintptr_t)it) == 0);
    atomic_store(&failed, 0);
    atomic_store(&left, allocations);
    atomic_store(&is_scarce, 1);
    sem_post(&may_begin);
    while (sem_wait(&is_over) != 0) {
    }
    atomic_store(&is_scarce, 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return returned;
}

/* Tries a call; returns true if an allocation of the call failed. */
static int try(const struct call *it, long allocations)
{
    static char before[STATE], after[STATE];
    CODE code;
    int was_short;
    it->prepare();
    look(before);
    code = call_without_memory(it, allocations);
    was_short = atomic_load(&failed);
    if (!DONE(code)) {
        if (!was_short || !REFUSED(code)) {
            fprintf(stderr, "%s with %ld allocations: %#x\n", it->name, allocations, (unsigned)code);
            exit(1);
        }
        look(after);
        if (strcmp(before, after) != 0) {
            fprintf(stderr, "%s with %ld allocations was refused and changed something:\n%s\n%s\n", it->name, allocations, before, after);
            exit(1);
        }
        code = it->call();
        if (!DONE(code)) {
            fprintf(stderr, "%s after a refusal with %ld allocations: %#x\n", it->name, allocations, (unsigned)code);
            exit(1);
        }
    }
    it->undo();
    return was_short;
}

/* Tries a call in a process that has made none yet. */
static int try_first(const struct call *it, long allocations)
{
    int status = -1;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        _exit(try(it, allocations) ? 2 : 0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 2)) {
        fprintf(stderr, "%s, the first call, with %ld allocations ended its process: %#x\n", it->name, allocations, (unsigned)status);
        exit(1);
    }
    return WEXITSTATUS(status) == 2;
}

/* Sweeps all calls, or those with a name, and prints the allocations of each. */
static void sweep(const struct call *calls, size_t count, const char *name, int (*attempt)(const struct call *, long))
{
    size_t index;
    for (index = 0; index < count; index++) {
        long allocations = 0;
        if (name != NULL && strcmp(name, calls[index].name) != 0) {
            continue;
        }
        while (attempt(&calls[index], allocations)) {
            allocations++;
            CHECK(allocations < 10000);
        }
        printf("%s: %ld\n", calls[index].name, allocations);
        fflush(stdout);
    }
}

#endif
