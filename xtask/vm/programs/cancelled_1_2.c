/* The same for DAT 1.2. */
#define EDITION_1_2
#include "../../../dat-ffi/dat-provider/tests/programs/cancelled.c"
