/* belfryd's signals are its own; the program gets those belfry was started with. */
#ifndef BELFRY_SERVER_SIGNALS_H
#define BELFRY_SERVER_SIGNALS_H

/* Ignore what must not stop a supervisor, block SIGCHLD, and remember how it was. Returns a signalfd for
 * SIGCHLD, or -errno. */
int signals_take(void);
/* In the child, before exec: as it was. */
void signals_give_back(void);

#endif
