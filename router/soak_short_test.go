//go:build !soak

package router_test

// soakCopies is how many copies are made under constant writes; make soak makes 200.
const soakCopies = 10
