/* Loads, uses and closes the library at run time; its threads go on in the part that stays
 * loaded. */
#include "check.h"
#include <dlfcn.h>

int main(int count, char **arguments)
{
    int round;
    CHECK(count == 2);
    for (round = 0; round < 3; round++) {
        void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        int (*get)(char *, rsmapi_controller_handle_t *);
        int (*attr)(rsmapi_controller_handle_t, rsmapi_controller_attr_t *);
        rsmapi_controller_handle_t controller = NULL;
        rsmapi_controller_attr_t attributes;
        CHECK(library != NULL);
        *(void **)&get = dlsym(library, "rsm_get_controller");
        *(void **)&attr = dlsym(library, "rsm_get_controller_attr");
        CHECK(get != NULL && attr != NULL);
        OK(get((char *)"loopback", &controller));
        CHECK(dlclose(library) == 0);
        usleep(20000);
        OK(attr(controller, &attributes));
    }
    return 0;
}
