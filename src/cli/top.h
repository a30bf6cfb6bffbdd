/* What belfry top shows: pure, from two reports to lines of text. */
#ifndef BELFRY_CLI_TOP_H
#define BELFRY_CLI_TOP_H

#include <json-c/json.h>
#include <stdio.h>

/* One frame: what the GPUs and their vGPUs did between the two reports (report_gather). `before` may be NULL: then it
 * is what the server says of its last window. Lines are as wide as they like up to `columns`. */
void top_draw(FILE *to, struct json_object *before, struct json_object *now, unsigned columns);
/* "[####|....]": how far `share` goes, with marks at the request and the limit. `width` characters and a NUL. */
void top_bar(char *to, unsigned width, double share, double request, double limit);

#endif
