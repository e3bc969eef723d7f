/* Signals of the system that come while the waiting thread is awake. Another thread floods the
 * node.
 *
 * flooded: waits for signals of a segment, on `loopback`.
 * flooded peer: node 2. Node 1, which runs `nodes hold`, is stopped when this asks. */
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <time.h>

/* Calls of a kind that are interrupted. */
#define ROUNDS 10
/* The segment of `nodes hold`. */
#define SERVED 0x500000
/* Seconds after which a signal counts as missed. Only a failure takes so long. */
#define MISSED 20

static struct pair quiet, noisy;
static pthread_t waiting;
/* The file of the main thread's state. */
static int status;
/* 1: a call begins. 2: the signal is sent. 0: the call is over. */
static volatile int step;
static volatile int over;

static void ring(int number) { (void)number; }

/* Tells whether the main thread is awake in a call that waits: such a call blocks its signals. */
static int is_awake_in_wait(void)
{
    char text[4096];
    char *found;
    ssize_t length = pread(status, text, sizeof text - 1, 0);
    CHECK(length > 0);
    text[length] = '\0';
    found = strstr(text, "\nState:\tR");
    if (found == NULL)
        return 0;
    found = strstr(text, "\nSigBlk:\t");
    CHECK(found != NULL);
    return strtoull(found + 9, NULL, 16) >> (SIGALRM - 1) & 1;
}

/* Keeps the node busy, and sends each call a signal while its thread is awake. */
static void *flood(void *unused)
{
    unsigned char byte = 1;
    time_t sent = 0;
    (void)unused;
    while (!over) {
        OK(rsm_intr_signal_post(noisy.import, RSM_SIGPOST_NO_ACCUMULATE));
        OK(rsm_memseg_import_put(noisy.import, 0, &byte, 1));
        if (step == 1 && is_awake_in_wait()) {
            step = 2;
            sent = time(NULL);
            CHECK(pthread_kill(waiting, SIGALRM) == 0);
        } else if (step == 2 && time(NULL) > sent + MISSED) {
            fprintf(stderr, "a signal was missed\n");
            exit(1);
        }
    }
    return NULL;
}

static int wait_for_signal(void) { return rsm_intr_signal_wait(quiet.export, PATIENCE); }

static int wait_for_descriptor(void)
{
    struct pollfd polled;
    int code;
    OK(rsm_memseg_get_pollfd(quiet.export, &polled));
    code = rsm_intr_signal_wait_pollfd(&polled, 1, PATIENCE, NULL);
    OK(rsm_memseg_release_pollfd(quiet.export));
    return code;
}

static int move(int (*mover)(rsm_scat_gath_t *))
{
    static unsigned char local[8];
    rsm_iovec_t entry;
    rsm_scat_gath_t vector;
    int code;
    memset(&entry, 0, sizeof entry);
    entry.io_type = RSM_VA_TYPE;
    entry.local.vaddr = (char *)local;
    entry.transfer_length = sizeof local;
    memset(&vector, 0, sizeof vector);
    vector.io_request_count = 1;
    vector.remote_handle = quiet.import;
    vector.iovec = &entry;
    code = mover(&vector);
    CHECK(vector.io_residual_count == (code == RSM_SUCCESS ? 0 : 1));
    return code;
}

static int putv(void) { return move(rsm_memseg_import_putv); }
static int getv(void) { return move(rsm_memseg_import_getv); }

static int join(void)
{
    rsm_memseg_import_handle_t import = NULL;
    int code = rsm_memseg_import_connect(quiet.controller, 1, SERVED, RSM_PERM_RDWR, &import);
    if (code == RSM_SUCCESS)
        quiet.import = import;
    return code;
}

/* RSMGEN-11, RSMST-09: a signal that comes while the thread is awake ends the call. */
static void interrupt(const char *name, int (*call)(void), int rounds)
{
    int round;
    for (round = 0; round < rounds; round++) {
        struct sigaction action;
        sigset_t before, after;
        int number, code;
        memset(&action, 0, sizeof action);
        action.sa_handler = ring;
        action.sa_flags = round % 2 ? SA_RESTART : 0;
        CHECK(sigaction(SIGALRM, &action, NULL) == 0);
        CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
        step = 1;
        code = call();
        if (code != RSMERR_INTERRUPTED) {
            fprintf(stderr, "%s: %d in round %d, step %d\n", name, code, round, step);
            exit(1);
        }
        step = 0;
        /* The mask is the program's again. */
        CHECK(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
        for (number = 1; number < 32; number++)
            CHECK(sigismember(&before, number) == sigismember(&after, number));
    }
    fprintf(stderr, "%s: interrupted %d times\n", name, rounds);
}

int main(int count, char **arguments)
{
    int is_peer = count > 1 && strcmp(arguments[1], "peer") == 0;
    const char *controller = is_peer ? "verbs0" : "loopback";
    sigset_t all, mine;
    pthread_t flooder;
    char path[64];
    rsmapi_barrier_t barrier;
    noisy = open_pair_of(controller, 1, 0, RSM_PERM_RDWR);
    OK(rsm_memseg_import_init_barrier(noisy.import, RSM_BAR_DEFAULT, &barrier));
    waiting = pthread_self();
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)gettid());
    status = open(path, O_RDONLY);
    CHECK(status >= 0);
    if (is_peer) {
        quiet.controller = noisy.controller;
        while (join() != RSM_SUCCESS)
            usleep(10000);
        OK(putv());
        printf("stop\n");
        fflush(stdout);
        CHECK(getchar() == '\n');
    } else
        quiet = open_pair(1, 0, RSM_PERM_RDWR);
    CHECK(sigfillset(&all) == 0 && pthread_sigmask(SIG_SETMASK, &all, &mine) == 0);
    CHECK(pthread_create(&flooder, NULL, flood, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &mine, NULL) == 0);
    if (is_peer) {
        interrupt("connect", join, 4);
        interrupt("putv", putv, 4);
        interrupt("getv", getv, 4);
    } else {
        interrupt("wait", wait_for_signal, ROUNDS);
        interrupt("wait_pollfd", wait_for_descriptor, ROUNDS);
    }
    over = 1;
    CHECK(pthread_join(flooder, NULL) == 0);
    return 0;
}
