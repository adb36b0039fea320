package supervise

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
)

const (
	lastSignal = 64 // the greatest number of a signal
	sigIgn     = 1  // SIG_IGN
)

// ignoredAtStart returns the signals that this process was started to ignore.
//
// The runtime of Go replaces most of what was inherited before any code of a
// program runs (package os/signal, "Default behavior of signals in Go
// programs"). The kernel still knows of the others. Of those that were replaced
// the runtime keeps a note to itself, and nothing else does: it is read from
// memory. It can't be found in a binary without a symbol table
// (-ldflags=-s); only the kernel's answer counts then.
func ignoredAtStart() []syscall.Signal {
	known := kernelIgnores()
	replaced, err := replacedHandlers()
	if err != nil {
		replaced = nil
	}
	var ignored []syscall.Signal
	for n := 1; n <= lastSignal; n++ {
		if known&(1<<(n-1)) != 0 || n < len(replaced) && replaced[n] == sigIgn {
			ignored = append(ignored, syscall.Signal(n))
		}
	}
	return ignored
}

// kernelIgnores has the bit n-1 set for a signal n that is ignored now; see
// proc_pid_status(5).
func kernelIgnores() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			mask, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return mask
		}
	}
	return 0
}

// replacedHandlers reads the array runtime.fwdSig, which has a word for each
// signal: the handler that the runtime found there before it set its own.
func replacedHandlers() ([]uint64, error) {
	file, err := elf.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	here := reflect.ValueOf(ignoredAtStart).Pointer()
	symbols, err := findSymbols(file, "runtime.fwdSig", packageName()+".ignoredAtStart")
	if err != nil {
		return nil, err
	}
	// A position-independent binary is not where its symbols say.
	shift := uint64(here) - symbols[1].Value
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, err
	}
	defer func() { _ = memory.Close() }()
	words := make([]byte, symbols[0].Size)
	if _, err := memory.ReadAt(words, int64(symbols[0].Value+shift)); err != nil {
		return nil, err
	}
	const size = strconv.IntSize / 8
	handlers := make([]uint64, len(words)/size)
	for i := range handlers {
		if size == 8 {
			handlers[i] = file.ByteOrder.Uint64(words[i*size:])
		} else {
			handlers[i] = uint64(file.ByteOrder.Uint32(words[i*size:]))
		}
	}
	return handlers, nil
}

func packageName() string { return reflect.TypeFor[Command]().PkgPath() }

// findSymbols is for a few of many: it makes no strings of the others.
func findSymbols(file *elf.File, names ...string) ([]elf.Symbol, error) {
	table := file.Section(".symtab")
	if table == nil || file.Class != elf.ELFCLASS64 {
		return nil, errors.New("no symbol table")
	}
	text := file.Section(".strtab")
	if text == nil {
		return nil, errors.New("no names of symbols")
	}
	entries, err := table.Data()
	if err != nil {
		return nil, err
	}
	strs, err := text.Data()
	if err != nil {
		return nil, err
	}
	found := make([]elf.Symbol, len(names))
	var entry elf.Sym64
	for ; len(entries) >= elf.Sym64Size; entries = entries[elf.Sym64Size:] {
		at := file.ByteOrder.Uint32(entries)
		for i, name := range names {
			if int(at)+len(name) < len(strs) && strs[int(at)+len(name)] == 0 && string(strs[at:int(at)+len(name)]) == name {
				if err := binary.Read(bytes.NewReader(entries), file.ByteOrder, &entry); err != nil {
					return nil, err
				}
				found[i] = elf.Symbol{Name: name, Value: entry.Value, Size: entry.Size}
			}
		}
	}
	for i, name := range names {
		if found[i].Value == 0 {
			return nil, fmt.Errorf("no symbol %s", name)
		}
	}
	return found, nil
}
