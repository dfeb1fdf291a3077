#include "tests/support/database.h"

int database_set_up(void **state)
{
    struct database *database = calloc(1, sizeof(*database));

    assert_non_null(database);
    database->folder = scratch_new();
    (void)snprintf(database->path, sizeof(database->path), "%s/needled.db", database->folder);
    CHECK(store_open(database->path, true, &database->store, &fault));
    *state = database;
    return 0;
}

int database_tear_down(void **state)
{
    struct database *database = *state;

    store_close(database->store);
    scratch_free(database->folder);
    free(database);
    return 0;
}
