/* The one thing that the software GPU does not have, a managed-memory device (nvidia-uvm): a file that the warden's
 * device takes for one, in a device that is the software GPU's in everything else. For tests of what the warden does
 * about such files; nothing is behind it, and every call that gets there is answered "done". */
#ifndef BELFRY_TESTS_MANAGED_FILE_H
#define BELFRY_TESTS_MANAGED_FILE_H

#include "card.h"

void managed_file_add(struct card *card); /* as stage_start_changed takes it */
int managed_file_open(const char *folder);

#endif
