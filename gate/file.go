package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
)

// File is [Marks] in a file. It belongs to one process.
type File struct {
	path string

	// mu guards the field below and is held while the file is written.
	mu    sync.Mutex
	marks map[string]int64 // as the file has them
}

// OpenFile returns the marks in a file, which is made by the first Raise if it is not
// there. A file that can't be read as marks is an error: to begin anew would let late
// holders through.
func OpenFile(path string) (*File, error) {
	f := &File{path: path, marks: make(map[string]int64)}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	if err := json.Unmarshal(text, &f.marks); err != nil {
		return nil, fmt.Errorf("gate: the marks in %s: %w", path, err)
	}
	return f, nil
}

// Raise is that of [Marks]. It writes another file, has the system put it on the disk,
// and renames it, so that a crash leaves the old marks or the new ones. A mark that does
// not rise costs no write.
func (f *File) Raise(_ context.Context, resource string, token int64) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mark := f.marks[resource]; mark >= token {
		return mark, nil
	}
	marks := maps.Clone(f.marks)
	marks[resource] = token
	text, err := json.Marshal(marks)
	if err != nil {
		return 0, err
	}
	if err := replace(f.path, text); err != nil {
		return 0, err
	}
	f.marks = marks
	return token, nil
}

// replace gives a file another content, durably.
func replace(path string, text []byte) error {
	folder := filepath.Dir(path)
	next, err := os.CreateTemp(folder, filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err := errors.Join(err, next.Sync(), next.Close()); err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return syncFolder(folder)
}
