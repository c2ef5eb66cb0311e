//go:build !race

package sim_test

// round is how many histories the tests make; make sim makes many more.
const round = 60
