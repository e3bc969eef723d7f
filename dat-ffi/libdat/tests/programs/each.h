/* Counts calls: each of them must succeed once and be refused once. */
#ifndef EACH_H
#define EACH_H

#include "check.h"

#define MOST 128

static struct {
    const char *name;
    int succeeded, refused;
} made[MOST];

static int count_of_calls;

/* Returns the index of a call; a new name must fit in the table. */
static int counted(const char *name)
{
    int index;
    for (index = 0; index < count_of_calls && strcmp(made[index].name, name) != 0; index++) {
    }
    CHECK(index < MOST);
    if (index == count_of_calls) {
        made[count_of_calls++].name = name;
    }
    return index;
}

#define GOOD(function, ...)                                                                                             \
    do {                                                                                                                \
        OK(function(__VA_ARGS__));                                                                                      \
        made[counted(#function)].succeeded++;                                                                           \
    } while (0)

#define BAD(type, subtype, function, ...)                                                                               \
    do {                                                                                                                \
        EXPECT_CODE(type, subtype, function(__VA_ARGS__));                                                              \
        made[counted(#function)].refused++;                                                                             \
    } while (0)

/* Checks the calls that the program's arguments name. */
static int all_were_made(int count, char **names)
{
    int index, missing = 0;
    CHECK(count > 1);
    for (index = 1; index < count; index++) {
        int call = counted(names[index]);
        if (!made[call].succeeded || !made[call].refused) {
            fprintf(stderr, "%s: %d times with success, %d times refused\n", names[index], made[call].succeeded, made[call].refused);
            missing++;
        }
    }
    CHECK(count_of_calls == count - 1);
    return missing != 0;
}

#endif
