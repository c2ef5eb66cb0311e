//go:build !unix

package main

import (
	"errors"
	"os"
)

func tryLock(*os.File) error {
	return errors.New("this platform has no file locks that a replica can rely on")
}
