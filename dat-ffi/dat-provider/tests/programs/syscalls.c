/* Counts the system calls of posts and dequeues. */
#include "check.h"
#include "counted.h"

#define POSTS 3

/* Posts Writes and takes their completions. The first one is not counted. */
static void writes(void)
{
    struct side near = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG), far = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    DAT_RMR_TRIPLET remote = target(&far, 1000, 7);
    DAT_LMR_TRIPLET pieces[2];
    int post;
    OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &near.endpoint));
    OK(dat_ep_create(far.ia, far.zone, far.receives, far.requests, far.connections, NULL, &far.endpoint));
    connect_sides(&near, &far, 4711);
    pieces[0] = piece(&near, 0, 3);
    pieces[1] = piece(&near, 100, 4);
    for (post = 0; post <= POSTS; post++) {
        DAT_EVENT event;
        DAT_RETURN code;
        if (post > 0)
            mark();
        code = dat_ep_post_rdma_write(near.endpoint, 2, pieces, cookie(post), &remote, DAT_COMPLETION_DEFAULT_FLAG);
        if (post > 0)
            mark();
        OK(code);
        do
            code = dat_evd_dequeue(near.requests, &event);
        while (DAT_GET_TYPE(code) == DAT_QUEUE_EMPTY);
        OK(code);
    }
    exit(0);
}

static void counted(int part, int calls)
{
    printf("post %d: %d system calls\n", part, calls);
    CHECK(calls == 0);
}

int main(void)
{
    CHECK(count_calls(writes, counted) == POSTS);
    return 0;
}
