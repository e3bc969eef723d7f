/* DAT 1.2: definitions that depend on the platform. */
#ifndef DAT_PLATFORM_SPECIFIC_H
#define DAT_PLATFORM_SPECIFIC_H

#if defined(DAT_COMMON_EDITION)
#error "one source cannot have both DAT 1.2 and DAT 2.0"
#endif
#define DAT_COMMON_EDITION 12
#include <dat_common/platform.h>

#endif
