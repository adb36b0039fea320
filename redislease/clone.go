package redislease

import (
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// clone returns a client with the same options and connections of its own, or the
// same client if it is of an unknown type. It does not repeat commands: the keeper tries
// again.
func clone(client redis.UniversalClient) redis.UniversalClient {
	switch client := client.(type) {
	case *redis.Client:
		options := ownOptions(client.Options())
		options.MaxRetries = -1
		options.ContextTimeoutEnabled = true
		options.MinIdleConns = 0
		return redis.NewClient(options)
	case *redis.ClusterClient:
		options := *client.Options()
		options.MaxRetries = -1
		options.ContextTimeoutEnabled = true
		options.MinIdleConns = 0
		options.PushNotificationProcessor = nil
		options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		return redis.NewClusterClient(&options)
	default:
		return client
	}
}

// ownOptions are those of a client for another one, without what can't be shared.
func ownOptions(options *redis.Options) *redis.Options {
	o := *options
	o.Protocol = 2 // has no pushes, for which the client would look before each command
	o.AutoPipelineOptions = nil
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	// What was switched off by -1 is 0 by now, which would mean the default.
	if o.MaxRetries == 0 {
		o.MaxRetries = -1
	}
	if o.MinRetryBackoff == 0 {
		o.MinRetryBackoff = -1
	}
	if o.MaxRetryBackoff == 0 {
		o.MaxRetryBackoff = -1
	}
	if o.ReadTimeout <= 0 {
		o.ReadTimeout--
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout--
	}
	return &o
}
