#include <dat/udat.h>
#include <stdio.h>

int main(void)
{
    DAT_EVD_HANDLE events = DAT_HANDLE_NULL;
    DAT_IA_HANDLE adapter;
    DAT_IA_ATTR attributes;
    if (dat_ia_open("mock0", 8, &events, &adapter) != DAT_SUCCESS) {
        return 1;
    }
    dat_ia_query(adapter, NULL, DAT_IA_FIELD_ALL, &attributes, 0, NULL);
    printf("%s has %d endpoints\n", attributes.adapter_name, (int)attributes.max_eps);
    return dat_ia_close(adapter, DAT_CLOSE_GRACEFUL_FLAG) != DAT_SUCCESS;
}
