/* The same for DAT 1.2. */
#define EDITION_1_2
#include "exhaust.c"
