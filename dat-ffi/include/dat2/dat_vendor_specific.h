/* DAT 2.0: additions of providers. This implementation has none. */
#ifndef DAT2_DAT_VENDOR_SPECIFIC_H
#define DAT2_DAT_VENDOR_SPECIFIC_H



#endif
