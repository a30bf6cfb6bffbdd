/* Text of somebody else's making, as people, terminals and JSON can have it. Pure. */
#ifndef BELFRY_SERVER_PLAIN_H
#define BELFRY_SERVER_PLAIN_H

/* What is not UTF-8, or is and cannot be printed, becomes '?', but for newlines and tabs. */
char *plain_make(char *text);

#endif
