#include <dat/udat.h>
#include <stdio.h>

int main(void)
{
    DAT_EVD_HANDLE events = DAT_HANDLE_NULL;
    DAT_IA_HANDLE adapter;
    DAT_IA_ATTR attributes;
    DAT_RETURN code = dat_ia_open("mock0", 8, &events, &adapter);
    const char *type = "?", *subtype = "";
    if (code != DAT_SUCCESS) {
        dat_strerror(code, &type, &subtype);
        fprintf(stderr, "mock0: %s %s\n", type, subtype);
        return 1;
    }
    dat_ia_query(adapter, NULL, DAT_IA_FIELD_ALL, &attributes, 0, NULL);
    printf("%s has %d endpoints\n", attributes.adapter_name, (int)attributes.max_eps);
    return dat_ia_close(adapter, DAT_CLOSE_GRACEFUL_FLAG) != DAT_SUCCESS;
}
