/* DAT 2.0: what providers have of their own. There is nothing. */
#ifndef DAT2_DAT_VENDOR_SPECIFIC_H
#define DAT2_DAT_VENDOR_SPECIFIC_H



#endif
