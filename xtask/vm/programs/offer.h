/* The message of the owner of memory to each peer. It has more than an honest owner would send, so that a hostile peer need not guess. */
#ifndef OFFER_H
#define OFFER_H

#include <stdint.h>

#define OWNER_PORT 4712
#define GRANTED 1000u
#define PAGE 4096u
#define GREETING 0x7065617au

/* The private data of a connection request: the kind of the peer. */
enum peer_kind { HONEST = 1, HOSTILE = 2, SILENT = 3 };
struct greeting {
    uint32_t magic;
    uint32_t kind;
};

/* A context, and the memory that it grants or once granted. */
struct grant {
    uint64_t address;
    uint32_t context;
    uint32_t length;
};

struct offer {
    /* Bound windows: to write, to read, and one that was bound again to other memory. */
    struct grant writable, readable, moved;
    /* Stale contexts: of the window that was bound again, of one that was unbound, and of one that was freed. */
    struct grant rebound, unbound, freed;
    /* A region of the same zone without remote rights, a region of another zone, and a window of that zone. */
    struct grant secret, other, other_window;
};

#endif
