/* Shared by the test programs: checks that print their line, and the first adapter. With
 * EDITION_1_2 they are programs for DAT 1.2, and macros convert the calls of 2.0. */
#ifndef CHECK_H
#define CHECK_H

#ifdef EDITION_1_2
#include <dat/udat.h>

#define DAT_TARGET target_address
typedef DAT_VLEN DAT_SEG_LENGTH;

/* Completions of 1.2 do not name the operation. */
typedef enum { DAT_DTO_SEND, DAT_DTO_RDMA_WRITE, DAT_DTO_RDMA_READ, DAT_DTO_RECEIVE } DAT_DTOS;

/* Arguments that 1.2 lacks. */
#define dat_lmr_create(ia, type, description, length, zone, privileges, address_type, ...) \
    (dat_lmr_create)(ia, type, description, length, zone, privileges, __VA_ARGS__)
#define dat_rmr_bind(window, region, piece, privileges, address_type, ...) \
    (dat_rmr_bind)(window, piece, privileges, __VA_ARGS__)
#define dat_cr_reject(request, size, data) ((void)(size), (void)(data), (dat_cr_reject)(request))

#else
#include <dat2/udat.h>
#define DAT_TARGET virtual_address
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND 1000000u
/* The longest time that anything may take, in microseconds. Only a failure takes so long. */
#define PATIENCE (60 * SECOND)

/* Ends the program unless a call returned this type; a whole return code must match exactly. */
#define EXPECT(type, call)                                                                                              \
    do {                                                                                                                \
        DAT_RETURN returned_ = (call);                                                                                  \
        if (DAT_GET_TYPE(returned_) != (DAT_UINT32)(type) || ((type) != DAT_SUCCESS && !(returned_ & DAT_CLASS_ERROR))) {   \
            fprintf(stderr, "%s:%d: %s returned %#x\n", __FILE__, __LINE__, #call, returned_);                          \
            exit(1);                                                                                                    \
        }                                                                                                               \
    } while (0)

#define EXPECT_CODE(type, subtype, call)                                                                                \
    do {                                                                                                                \
        DAT_RETURN returned_ = (call);                                                                                  \
        if (returned_ != ((DAT_UINT32)DAT_CLASS_ERROR | (DAT_UINT32)(type) | (DAT_UINT32)(subtype))) {                         \
            fprintf(stderr, "%s:%d: %s returned %#x\n", __FILE__, __LINE__, #call, returned_);                          \
            exit(1);                                                                                                    \
        }                                                                                                               \
    } while (0)

#define OK(call) EXPECT(DAT_SUCCESS, call)

#define CHECK(condition)                                                                                                \
    do {                                                                                                                \
        if (!(condition)) {                                                                                             \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                               \
            exit(1);                                                                                                    \
        }                                                                                                               \
    } while (0)

/* Waits for an event, which must have this number. */
static inline DAT_EVENT next_event(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    DAT_COUNT more = -1;
    OK(dat_evd_wait(evd, PATIENCE, 1, &event, &more));
    if (event.event_number != number) {
        fprintf(stderr, "event %#x came instead of %#x\n", event.event_number, number);
        exit(1);
    }
    CHECK(event.evd_handle == evd);
    CHECK(more >= 0);
    return event;
}

struct side {
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE async, requests, receives, connections, arrivals;
    DAT_PZ_HANDLE zone;
    DAT_EP_HANDLE endpoint;
    DAT_LMR_HANDLE region;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
    char *memory;
};

#define BYTES 8192
#define MOST_SIDES 256

static char *memory_of_sides[MOST_SIDES];
static int sides;

static inline struct side open_side(const char *name, DAT_MEM_PRIV_FLAGS privileges)
{
    struct side side;
    DAT_REGION_DESCRIPTION description;
    DAT_VLEN size = 0;
    DAT_VADDR address = 0;
    memset(&side, 0, sizeof side);
    OK(dat_ia_open((DAT_NAME_PTR)name, 8, &side.async, &side.ia));
    OK(dat_pz_create(side.ia, &side.zone));
    OK(dat_evd_create(side.ia, 16, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &side.requests));
    OK(dat_evd_create(side.ia, 16, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &side.receives));
    OK(dat_evd_create(side.ia, 16, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &side.connections));
    OK(dat_evd_create(side.ia, 16, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &side.arrivals));
    side.memory = calloc(1, BYTES);
    /* An abrupt close does not free this memory. The array keeps leak checkers from reporting
     * it. */
    CHECK(sides < MOST_SIDES);
    memory_of_sides[sides++] = side.memory;
    description.for_va = side.memory;
    OK(dat_lmr_create(side.ia, DAT_MEM_TYPE_VIRTUAL, description, BYTES, side.zone, privileges, DAT_VA_TYPE_VA,
                      &side.region, &side.local, &side.remote, &size, &address));
    CHECK(size == BYTES && address == (DAT_VADDR)(uintptr_t)side.memory);
    return side;
}

static inline void free_side(struct side *side)
{
    OK(dat_lmr_free(side->region));
    OK(dat_evd_free(side->arrivals));
    OK(dat_evd_free(side->connections));
    OK(dat_evd_free(side->receives));
    OK(dat_evd_free(side->requests));
    OK(dat_pz_free(side->zone));
    OK(dat_ia_close(side->ia, DAT_CLOSE_GRACEFUL_FLAG));
    free(side->memory);
}

static inline DAT_LMR_TRIPLET piece(const struct side *side, size_t offset, DAT_SEG_LENGTH length)
{
    DAT_LMR_TRIPLET piece;
    memset(&piece, 0, sizeof piece);
    piece.virtual_address = (DAT_VADDR)(uintptr_t)(side->memory + offset);
    piece.segment_length = length;
    piece.lmr_context = side->local;
    return piece;
}

static inline DAT_RMR_TRIPLET target(const struct side *side, size_t offset, DAT_SEG_LENGTH length)
{
    DAT_RMR_TRIPLET target;
    memset(&target, 0, sizeof target);
    target.DAT_TARGET = (DAT_VADDR)(uintptr_t)(side->memory + offset);
    target.segment_length = length;
    target.rmr_context = side->remote;
    return target;
}

static inline DAT_DTO_COOKIE cookie(DAT_UINT64 value)
{
    DAT_DTO_COOKIE cookie;
    cookie.as_64 = value;
    return cookie;
}

/* The next completion is a success with this cookie, endpoint, operation and length. */
static inline void completed(DAT_EVD_HANDLE evd, DAT_EP_HANDLE ep, DAT_UINT64 value, DAT_DTOS operation, DAT_SEG_LENGTH length)
{
    DAT_EVENT event = next_event(evd, DAT_DTO_COMPLETION_EVENT);
    DAT_DTO_COMPLETION_EVENT_DATA *data = &event.event_data.dto_completion_event_data;
    CHECK(data->ep_handle == ep);
    CHECK(data->user_cookie.as_64 == value);
    CHECK(data->status == DAT_DTO_SUCCESS);
#ifdef EDITION_1_2
    (void)operation;
#else
    CHECK(data->operation == operation);
#endif
    CHECK(data->transfered_length == length);
}

/* Connects an endpoint of one side to one of the other, whose service point has the qualifier. */
static inline void connect_sides(struct side *near, struct side *far, DAT_CONN_QUAL qualifier)
{
    DAT_IA_ATTR attributes;
    DAT_PSP_HANDLE listener = DAT_HANDLE_NULL;
    DAT_CR_PARAM asked;
    DAT_EVENT event;
    DAT_CR_HANDLE request;
    char greeting[] = "please", answer[] = "of course";
    OK(dat_psp_create(far->ia, qualifier, far->arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
    OK(dat_ia_query(far->ia, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &attributes, 0, NULL));
    OK(dat_ep_connect(near->endpoint, attributes.ia_address_ptr, qualifier, DAT_TIMEOUT_INFINITE, sizeof greeting, greeting,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next_event(far->arrivals, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(event.event_data.cr_arrival_event_data.sp_handle.psp_handle == listener);
    CHECK(event.event_data.cr_arrival_event_data.conn_qual == qualifier);
    CHECK(event.event_data.cr_arrival_event_data.local_ia_address_ptr->sa_family == AF_INET);
    request = event.event_data.cr_arrival_event_data.cr_handle;
    OK(dat_cr_query(request, DAT_CR_FIELD_ALL, &asked));
    CHECK(asked.private_data_size >= (DAT_COUNT)sizeof greeting);
    CHECK(strcmp(asked.private_data, greeting) == 0);
    CHECK(asked.local_ep_handle == DAT_HANDLE_NULL);
    CHECK(asked.remote_ia_address_ptr->sa_family == AF_INET);
    OK(dat_cr_accept(request, far->endpoint, sizeof answer, answer));
    EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR, dat_cr_accept(request, far->endpoint, 0, NULL));
    event = next_event(near->connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    CHECK(event.event_data.connect_event_data.ep_handle == near->endpoint);
    CHECK(event.event_data.connect_event_data.private_data_size >= (DAT_COUNT)sizeof answer);
    CHECK(strcmp(event.event_data.connect_event_data.private_data, answer) == 0);
    event = next_event(far->connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    CHECK(event.event_data.connect_event_data.ep_handle == far->endpoint);
    OK(dat_psp_free(listener));
}

#endif
