/* DAT 2.0: what providers have of their own for user programs. There is nothing. */
#ifndef DAT2_UDAT_VENDOR_SPECIFIC_H
#define DAT2_UDAT_VENDOR_SPECIFIC_H

#include <dat2/dat_vendor_specific.h>

#endif
