/* What the owner of memory tells a peer, friend or foe: more than any honest owner would, so that nobody has to guess. */
#ifndef OFFER_H
#define OFFER_H

#include <stdint.h>

#define OWNER_PORT 4712
#define GRANTED 1000u
#define PAGE 4096u
#define GREETING 0x7065617au

/* Whoever asks for a connection says who it is, in the private data. */
enum guest { HONEST = 1, HOSTILE = 2, SILENT = 3 };
struct greeting {
    uint32_t magic;
    uint32_t guest;
};

/* A context, and where what it names begins, or began. */
struct place {
    uint64_t address;
    uint32_t context;
    uint32_t length;
};

struct offer {
    /* Windows that are open: to write, to read, and one that was opened again elsewhere. */
    struct place writable, readable, moved;
    /* Windows that are not: the one that was moved, one that was closed, and one that was freed. */
    struct place rebound, unbound, freed;
    /* Memory of the same zone that no peer may reach, and of another zone that its own peers may; and a window there. */
    struct place secret, other, other_window;
};

#endif
