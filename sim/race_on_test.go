//go:build race

package sim_test

// round is smaller where everything takes several times as long.
const round = 20
