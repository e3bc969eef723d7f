/* DAT 1.2: return values of calls. */
#ifndef DAT_ERROR_H
#define DAT_ERROR_H

#include <dat/dat_platform_specific.h>
#include <dat_common/error.h>

#endif
