//go:build unix

package main

import "os"

// settings are what a replica is told. They travel in the environment, which,
// unlike a command line, other users of the machine can't read: the connection
// string holds a password.
type settings struct {
	name     string // of the replica
	dsn      string
	schema   string
	resource string
	folder   string
}

const (
	envName     = "BATCHEXPORT_REPLICA"
	envDSN      = "BATCHEXPORT_DSN"
	envSchema   = "BATCHEXPORT_SCHEMA"
	envResource = "BATCHEXPORT_RESOURCE"
	envFolder   = "BATCHEXPORT_FOLDER"
)

// settingsFromEnv reports false in the main process.
func settingsFromEnv() (settings, bool) {
	name, ok := os.LookupEnv(envName)
	return settings{
		name:     name,
		dsn:      os.Getenv(envDSN),
		schema:   os.Getenv(envSchema),
		resource: os.Getenv(envResource),
		folder:   os.Getenv(envFolder),
	}, ok
}

// environ is this process's environment with the settings added.
func (s settings) environ() []string {
	return append(os.Environ(),
		envName+"="+s.name,
		envDSN+"="+s.dsn,
		envSchema+"="+s.schema,
		envResource+"="+s.resource,
		envFolder+"="+s.folder)
}
