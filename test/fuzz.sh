#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time, one after the other:
# the go command fuzzes one target of one package at a time.
set -euo pipefail
fuzztime=${1:?usage: fuzz.sh DURATION}
cd "$(dirname "$0")/.."

grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file" | while read -r target; do
		echo "== $(dirname "$file") $target"
		# Minimizing large inputs would take longer than finding them.
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" -fuzzminimizetime 1x "$(dirname "$file")" </dev/null
	done
done
