//go:build cgo

package fencing

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
static void trim(void) { malloc_trim(0); }
#else
static void trim(void) {}
#endif
*/
import "C"

// ReturnMemory gives back to the operating system what SQLite has freed and the C library
// has kept, as far as the library can. It is worth its milliseconds after many
// connections were closed: their memory is in many small pieces, which the library would
// keep for ever.
func ReturnMemory() { C.trim() }
