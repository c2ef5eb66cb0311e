//go:build soak

package router_test

const soakCopies = 200
