/* Counts the system calls of one thread, by ptrace. Needs CHECK. */
#ifndef COUNTED_H
#define COUNTED_H

#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* No process has this number. */
#define MARK 0x7fffffff

/* Begins or ends a counted part; the libraries make no call like it. */
static inline void mark(void)
{
    syscall(SYS_getpgid, MARK);
}

/* Runs `act` in a child, and calls `counted` for each part with its number and the number of its
 * system calls. Returns the number of parts.
 *
 * Wake-ups of other threads, and waits for them, do not count: there are more if threads meet. */
static inline int count_calls(void (*act)(void), void (*counted)(int part, int calls))
{
    int status, marks = 0, calls = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(77);
        raise(SIGSTOP);
        act();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        fprintf(stderr, "skipped: the system allows no tracing\n");
        exit(0);
    }
    CHECK(WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
    while (WIFSTOPPED(status)) {
        struct __ptrace_syscall_info call;
        long signal = 0;
        if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
            signal = WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status);
        } else {
            CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof call, &call) > 0);
            if (call.op == PTRACE_SYSCALL_INFO_ENTRY && call.entry.nr == SYS_getpgid && call.entry.args[0] == MARK) {
                if (marks++ % 2)
                    counted(marks / 2 - 1, calls);
                calls = 0;
            } else if (call.op == PTRACE_SYSCALL_INFO_ENTRY) {
                int nr = (int)call.entry.nr;
                /* Those of a sleep, whose number varies: it masks signals, and reads its bell. */
                calls += nr != SYS_futex && nr != SYS_ppoll && nr != SYS_sched_yield
                    && nr != SYS_rt_sigprocmask && nr != SYS_read;
            }
        }
        CHECK(ptrace(PTRACE_SYSCALL, child, NULL, (void *)signal) == 0);
        CHECK(waitpid(child, &status, 0) == child);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(marks % 2 == 0);
    return marks / 2;
}

#endif
