// Package compat shows that libraries which take a *sql.DB run unchanged on a
// guarded one. It is a module of its own, so that what it needs stays out of
// leasehold's.
package compat
