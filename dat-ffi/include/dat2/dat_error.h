/* DAT 2.0: return values of calls. */
#ifndef DAT2_DAT_ERROR_H
#define DAT2_DAT_ERROR_H

#include <dat2/dat_platform_specific.h>
#include <dat_common/error.h>

#endif
