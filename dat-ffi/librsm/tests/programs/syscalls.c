/* Counts the system calls of transfers, by ptrace. */
#include "check.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

enum layout { TOGETHER, APART, HANDLES, LAYOUTS };
static const char *const layouts[LAYOUTS] = {"one buffer", "16 buffers", "a handle"};
typedef int (*mover)(rsm_scat_gath_t *);
static const mover movers[2] = {rsm_memseg_import_putv, rsm_memseg_import_getv};
static const char *const names[2] = {"putv", "getv"};

/* Vector and entries on one page. */
static struct {
    rsm_scat_gath_t vector;
    rsm_iovec_t entries[RSM_MAX_SGIOREQS];
} __attribute__((aligned(2048))) request;

/* Marks the beginning or end of a counted call; no other call of the library is like it. */
static void mark(void)
{
    syscall(SYS_getpgid, 0x7fffffff);
}

/* Makes each call twice, the second time between marks. */
static void transfers(void)
{
    struct pair pair = open_pair(1, 0, RSM_PERM_RDWR);
    unsigned char *local = pages(2 * RSM_MAX_SGIOREQS);
    rsm_localmemory_handle_t handle;
    int layout, way, at, turn;
    OK(rsm_create_localmemory_handle(pair.controller, &handle, (char *)local, 2 * RSM_MAX_SGIOREQS * PAGE));
    for (layout = 0; layout < LAYOUTS; layout++) {
        for (way = 0; way < 2; way++) {
            memset(&request, 0, sizeof request);
            for (at = 0; at < RSM_MAX_SGIOREQS; at++) {
                rsm_iovec_t *entry = &request.entries[at];
                entry->io_type = layout == HANDLES ? RSM_HANDLE_TYPE : RSM_VA_TYPE;
                if (layout == HANDLES)
                    entry->local.handle = handle;
                else
                    entry->local.vaddr = (char *)local;
                entry->local_offset = layout == APART ? 2 * at * PAGE : 8 * at;
                entry->remote_offset = 8 * at;
                entry->transfer_length = 8;
            }
            request.vector.io_request_count = RSM_MAX_SGIOREQS;
            request.vector.remote_handle = pair.import;
            request.vector.iovec = request.entries;
            for (turn = 0; turn < 2; turn++) {
                if (turn == 1)
                    mark();
                OK(movers[way](&request.vector));
                if (turn == 1)
                    mark();
            }
        }
    }
    OK(rsm_free_localmemory_handle(pair.controller, handle));
    close_pair(&pair);
}

/* Returns true if the system takes a list of ranges. */
static int takes_lists(void)
{
    unsigned char *page = pages(1);
    struct { void *base; size_t length; } range = {page, PAGE};
    long advised = syscall(SYS_process_madvise, -10000, &range, 1, MADV_POPULATE_READ, 0);
    free(page);
    return advised == PAGE;
}

int main(void)
{
    int status, marks = 0, all = 0, about_memory = 0;
    int apart = takes_lists() ? 1 : RSM_MAX_SGIOREQS;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(77);
        raise(SIGSTOP);
        transfers();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        printf("skipped: the system allows no tracing\n");
        return 0;
    }
    CHECK(WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
    for (;;) {
        struct __ptrace_syscall_info call;
        int signal = 0;
        if (WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof call, &call) > 0);
            if (call.op == PTRACE_SYSCALL_INFO_ENTRY) {
                if (call.entry.nr == SYS_getpgid && call.entry.args[0] == 0x7fffffff) {
                    if (marks++ % 2) {
                        int counted = marks / 2 - 1, layout = counted / 2;
                        printf("%s of 16 entries in %s: %d system calls, %d about memory\n", names[counted % 2],
                               layouts[layout], all, about_memory);
                        /* One for the vector and its entries, one for the local memory. */
                        CHECK(about_memory == 1 + (layout == APART ? apart : 1));
                    }
                    all = about_memory = 0;
                } else {
                    all++;
                    about_memory += call.entry.nr == SYS_madvise || call.entry.nr == SYS_process_madvise;
                }
            }
        } else if (WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP) {
            signal = WSTOPSIG(status);
        } else if (!WIFSTOPPED(status)) {
            break;
        }
        CHECK(ptrace(PTRACE_SYSCALL, child, NULL, (void *)(long)signal) == 0);
        CHECK(waitpid(child, &status, 0) == child);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(marks == 2 * 2 * LAYOUTS);
    return 0;
}
