/* The trace of a process, which the library writes for belfry verify: what the process launched, and what it copied to the
 * host.
 *
 * A trace is a text file in the folder that BELFRY_TRACE names. Each process has one, `PID-N.trace`, from its first event on.
 * Each line is written by one write(2) and ends with a newline, so the trace of a process that was killed lacks at most a part
 * of its last line. A trace that could not be written completely is empty. The first line is the head:
 *
 *   belfry-trace 1
 *
 * The other lines begin with a letter. Fields are separated by one space; numbers are hexadecimal; "-" is a hash that is not
 * known. EVENT is a number that rises from event to event of the process: lines of copies may come later than their place.
 * THREAD is the thread that made the call, STREAM the driver's number of the stream. GRID and BLOCK are three numbers, with
 * commas.
 *
 *   F NAME-NUMBER NAME                                          a kernel's name, up to the end of the line
 *   L EVENT THREAD STREAM NAME-NUMBER GRID BLOCK SHARED ATTRIBUTES PARAMETERS   a launch
 *   N GRAPH NAME-NUMBER GRID BLOCK SHARED ATTRIBUTES PARAMETERS  a kernel node of the executable graph with this number
 *   G EVENT THREAD STREAM GRAPH                                 a launch of that graph, whose nodes are above
 *   C EVENT THREAD STREAM BYTES CONTENT                         a copy from the device to the host
 *   B EVENT THREAD BYTES CONTENT NAME                           the content of a global variable of a module, at its end
 *
 * ATTRIBUTES, PARAMETERS and CONTENT are hashes. In PARAMETERS, an address in memory of the process is replaced by what does
 * not change from run to run: for device memory the number of the allocation among those of its thread, its size and the
 * offset in it. */
#ifndef BELFRY_CORO_TRACE_FORMAT_H
#define BELFRY_CORO_TRACE_FORMAT_H

#define TRACE_HEAD "belfry-trace 1\n"
#define TRACE_SUFFIX ".trace"

#endif
