/* The same for remote shared memory. */
#include "../../../dat-ffi/librsm/tests/programs/fork.c"
