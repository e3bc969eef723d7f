/* DAT 2.0: opens an adapter that dat.conf names, and prints its attributes.
 *
 *     cc open2.c $(pkg-config --cflags --libs dat2) -o open2 && DAT_OVERRIDE=dat.conf ./open2 mock0
 */
#include <dat2/udat.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    char *name = count > 1 ? arguments[1] : "mock0";
    DAT_EVD_HANDLE asynchronous = DAT_HANDLE_NULL;
    DAT_IA_HANDLE adapter;
    DAT_IA_ATTR attributes;
    DAT_PROVIDER_ATTR provider;
    DAT_RETURN code = dat_ia_open(name, 8, &asynchronous, &adapter);
    const char *type = "?", *subtype = "";
    if (code == DAT_SUCCESS) {
        code = dat_ia_query(adapter, NULL, DAT_IA_FIELD_ALL, &attributes, DAT_PROVIDER_FIELD_ALL, &provider);
    }
    if (code != DAT_SUCCESS) {
        dat_strerror(code, &type, &subtype);
        fprintf(stderr, "%s: %s %s\n", name, type, subtype);
        return 1;
    }
    printf("%s: %d endpoints, private data of %d bytes\n", name, (int)attributes.max_eps, (int)provider.max_private_data_size);
    return dat_ia_close(adapter, DAT_CLOSE_GRACEFUL_FLAG) == DAT_SUCCESS ? 0 : 1;
}
