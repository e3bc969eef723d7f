/* DAT 2.0: definitions that depend on the platform. */
#ifndef DAT2_DAT_PLATFORM_SPECIFIC_H
#define DAT2_DAT_PLATFORM_SPECIFIC_H

#if defined(DAT_COMMON_EDITION)
#error "one source cannot have both DAT 1.2 and DAT 2.0"
#endif
#define DAT_COMMON_EDITION 20
#include <dat_common/platform.h>
#include <inttypes.h>
#include <stdio.h>

/* Descriptor of a notification object, for poll(). */
typedef int DAT_FD;

/* Handles of adapters are small numbers in this implementation. */
#define DAT_IA_HANDLE_TO_UL(handle) ((unsigned long)(handle))
#define DAT_UL_TO_IA_HANDLE(number) ((DAT_IA_HANDLE)(number))

#endif
