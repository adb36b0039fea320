// Package redislease takes locks in Redis.
package redislease
