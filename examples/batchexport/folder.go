//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// folder is where the replicas write their files.
type folder struct {
	path string
	keep bool
}

// newFolder takes the folder to keep, or makes one for this run only.
func newFolder(keep string) (*folder, error) {
	if keep == "" {
		path, err := os.MkdirTemp("", "batchexport-")
		return &folder{path: path}, err
	}
	path, err := filepath.Abs(keep)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("-keep %s: the folder is not empty", keep)
	}
	return &folder{path: path, keep: true}, nil
}

// Close removes the folder unless it is to be kept.
func (f *folder) Close() error {
	if f.keep {
		return nil
	}
	return os.RemoveAll(f.path)
}
