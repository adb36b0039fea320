//go:build unix

package gate

import (
	"errors"
	"os"
)

// syncFolder has the system put the names of a folder on the disk.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
