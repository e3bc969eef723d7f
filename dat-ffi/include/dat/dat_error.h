/* DAT 1.2: what calls return. */
#ifndef DAT_ERROR_H
#define DAT_ERROR_H

#include <dat/dat_platform_specific.h>
#include <dat_common/error.h>

#endif
