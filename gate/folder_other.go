//go:build !unix

package gate

// syncFolder does nothing where folders can't be opened: NTFS logs renames.
func syncFolder(string) error { return nil }
