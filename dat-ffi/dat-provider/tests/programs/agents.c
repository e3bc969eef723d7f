/* Agents of notification objects. A free waits for the calls of its object's agent and for no
 * others. An agent is called once, or not at all if its object is freed first. Calls do not
 * nest. */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>

#define FREES 400
#define CLOSES 60

static void post_to(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    (void)dat_evd_post_se(evd, &event);
}

static void *post(void *evd)
{
    post_to((DAT_EVD_HANDLE)evd);
    return NULL;
}

static void until(atomic_int *number, int least)
{
    while (*number < least)
        sched_yield();
}

static DAT_IA_HANDLE opened(void)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    OK(dat_ia_open((DAT_NAME_PTR)"mock0", 8, &async, &ia));
    return ia;
}

/* A notification object with an agent, and a dispatcher that notifies it. */
struct object {
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE evd;
    pthread_t thread;
    /* The object that the agent frees or notifies. */
    struct object *other;
};

static void make(struct object *object, DAT_IA_HANDLE ia, void (*function)(DAT_PVOID, DAT_EVD_HANDLE))
{
    DAT_OS_WAIT_PROXY_AGENT agent = {object, function};
    OK(dat_cno_create(ia, agent, &object->cno));
    OK(dat_evd_create(ia, 8, object->cno, DAT_EVD_SOFTWARE_FLAG, &object->evd));
}

/* Frees the object, but not its dispatcher. */
static void free_object(struct object *object)
{
    OK(dat_evd_modify_cno(object->evd, DAT_HANDLE_NULL));
    OK(dat_cno_free(object->cno));
}

static void notify(struct object *object)
{
    CHECK(pthread_create(&object->thread, NULL, post, object->evd) == 0);
}

static atomic_int begun, wanted, ended;

static void patient(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    (void)data, (void)evd;
    begun++;
    until(&wanted, 1);
    ended++;
}

/* Frees another object during a call of an agent; frees the agent's own object after the call. */
static void other_objects_are_freed_meanwhile(void)
{
    DAT_IA_HANDLE ia = opened();
    struct object busy, other;
    begun = wanted = ended = 0;
    make(&busy, ia, patient);
    make(&other, ia, patient);
    notify(&busy);
    until(&begun, 1);
    free_object(&other);
    CHECK(ended == 0);
    wanted = 1;
    free_object(&busy);
    CHECK(ended == 1);
    CHECK(pthread_join(busy.thread, NULL) == 0);
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    CHECK(begun == 1);
}

static void freeing(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    struct object *object = data;
    CHECK(evd == object->evd);
    begun++;
    until(&begun, wanted);
    free_object(object->other);
    ended++;
}

/* All agents are called at once, and each frees the object of the next one. */
static void agents_free_each_other(int count)
{
    DAT_IA_HANDLE ia = opened();
    struct object objects[3];
    int index;
    begun = ended = 0;
    wanted = count;
    for (index = 0; index < count; index++) {
        make(&objects[index], ia, freeing);
        objects[index].other = &objects[(index + 1) % count];
    }
    for (index = 0; index < count; index++)
        notify(&objects[index]);
    for (index = 0; index < count; index++)
        CHECK(pthread_join(objects[index].thread, NULL) == 0);
    CHECK(ended == count);
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    CHECK(begun == count);
}

static atomic_int round_, posted, is_freed;
static _Atomic(DAT_EVD_HANDLE) fired_on;

static void not_after_the_free(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    (void)data, (void)evd;
    CHECK(!is_freed);
    sched_yield();
    CHECK(!is_freed);
}

/* Posts once in each round. */
static void *poster(void *rounds)
{
    int next;
    for (next = 1; next <= *(int *)rounds; next++) {
        until(&round_, next);
        post_to(fired_on);
        posted++;
    }
    return NULL;
}

static void freed_while_it_is_about_to_be_called(void)
{
    DAT_IA_HANDLE ia = opened();
    struct object object;
    pthread_t thread;
    DAT_EVENT event;
    int rounds = FREES, next;
    round_ = posted = 0;
    CHECK(pthread_create(&thread, NULL, poster, &rounds) == 0);
    for (next = 1; next <= rounds; next++) {
        is_freed = 0;
        make(&object, ia, not_after_the_free);
        fired_on = object.evd;
        round_ = next;
        if (next % 2)
            sched_yield();
        free_object(&object);
        is_freed = 1;
        until(&posted, next);
        OK(dat_evd_dequeue(object.evd, &event));
        OK(dat_evd_free(object.evd));
    }
    CHECK(pthread_join(thread, NULL) == 0);
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
}

static void counting(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    (void)data, (void)evd;
    begun++;
}

/* When the close has returned, each agent has been called once, for an event or for the close. */
static void closed_while_it_is_about_to_be_called(void)
{
    pthread_t thread;
    int rounds = CLOSES, next;
    begun = round_ = posted = 0;
    CHECK(pthread_create(&thread, NULL, poster, &rounds) == 0);
    for (next = 1; next <= rounds; next++) {
        DAT_IA_HANDLE ia = opened();
        struct object object;
        make(&object, ia, counting);
        fired_on = object.evd;
        round_ = next;
        if (next % 2)
            sched_yield();
        OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
        CHECK(begun == next);
        until(&posted, next);
        CHECK(begun == next);
    }
    CHECK(pthread_join(thread, NULL) == 0);
}

#define NESTED 20000
#define CHAIN 300

static int depth, calls;

/* Sets itself again and notifies the next object, which may be its own. */
static void notifying(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    struct object *object = data;
    DAT_OS_WAIT_PROXY_AGENT again = {object, notifying};
    DAT_EVENT event;
    CHECK(depth++ == 0);
    CHECK(evd == object->evd);
    OK(dat_evd_dequeue(evd, &event));
    OK(dat_cno_modify_agent(object->cno, again));
    if (++calls < NESTED)
        post_to(object->other->evd);
    depth--;
}

/* One object notifies itself, two of two adapters each other, or many in a ring. */
static void calls_do_not_nest(int count)
{
    static struct object objects[CHAIN];
    DAT_IA_HANDLE ias[] = {opened(), opened()};
    int index;
    calls = 0;
    for (index = 0; index < count; index++) {
        make(&objects[index], ias[index % 2], notifying);
        objects[index].other = &objects[(index + 1) % count];
    }
    post_to(objects[0].evd);
    CHECK(calls == NESTED);
    for (index = 0; index < count; index++)
        free_object(&objects[index]);
    for (index = 0; index < 2; index++)
        OK(dat_ia_close(ias[index], DAT_CLOSE_ABRUPT_FLAG));
    CHECK(calls == NESTED);
}

int main(void)
{
    other_objects_are_freed_meanwhile();
    agents_free_each_other(2);
    agents_free_each_other(3);
    freed_while_it_is_about_to_be_called();
    closed_while_it_is_about_to_be_called();
    calls_do_not_nest(1);
    calls_do_not_nest(2);
    calls_do_not_nest(CHAIN);
    return 0;
}
