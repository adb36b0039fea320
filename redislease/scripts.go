package redislease

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed acquire.lua
	acquireText string
	//go:embed renew.lua
	renewText string
	//go:embed release.lua
	releaseText string

	acquireScript = redis.NewScript(acquireText)
	renewScript   = redis.NewScript(renewText)
	releaseScript = redis.NewScript(releaseText)
)

// answer is what the scripts say of a lease.
type answer string

const (
	answerHeld    answer = "held"    // by the owner; until now, for a release
	answerTaken   answer = "taken"   // by another owner
	answerMissing answer = "missing" // held by nobody
)

// grantAnswer is what the script says of an attempt to acquire.
type grantAnswer struct {
	sent  time.Duration // when Redis was asked, or before
	token int64         // 0 if another holds it
	left  time.Duration // for which the other does; negative if without an end
}

func (l *Leaser) acquire(ctx context.Context, client redis.Scripter, k keys, owner string) (grantAnswer, error) {
	sent := l.now()
	reply, err := acquireScript.Run(ctx, client, []string{k.lock, k.counter}, owner, l.config.TTL.Milliseconds()).Result()
	if err != nil {
		return grantAnswer{}, err
	}
	switch reply := reply.(type) {
	case int64:
		if reply > 0 && reply <= maxToken {
			return grantAnswer{sent: sent, token: reply}, nil
		}
		return grantAnswer{}, fmt.Errorf("the counter %s is at %d, which is no token", k.counter, reply)
	case []any:
		if len(reply) == 1 {
			if left, ok := reply[0].(int64); ok {
				return grantAnswer{sent: sent, left: time.Duration(left) * time.Millisecond}, nil
			}
		}
	}
	return grantAnswer{}, fmt.Errorf("an answer of type %T to the script", reply)
}

// maxToken is the highest token that Lua counts exactly.
const maxToken = 1<<53 - 1

func release(ctx context.Context, client redis.Scripter, lock, owner string) (a answer, notSent string, err error) {
	text, err := releaseScript.Run(ctx, client, []string{lock}, owner).Text()
	if err != nil {
		return "", "", err
	}
	a, notSent = parseReleased(text)
	return a, notSent, nil
}

// parseReleased also says why those who wait were not told.
func parseReleased(text string) (a answer, notSent string) {
	text, notSent, _ = strings.Cut(text, ", and ")
	return answer(text), notSent
}

// renewal is one lease in a round trip that renews several.
type renewal struct {
	lock, owner string
	cmd         *redis.Cmd
}

func (r *renewal) answer() (answer, error) {
	text, err := r.cmd.Text()
	return answer(text), err
}

// renewAll renews leases in one round trip; in a second one those of a server that
// does not know the script, because it was restarted, promoted or its scripts were
// flushed. The answers are in the renewals.
func renewAll(ctx context.Context, client redis.UniversalClient, renewals []*renewal, ttl time.Duration) {
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { // the errors are the commands' too
		for _, r := range renewals {
			r.cmd = renewScript.EvalSha(ctx, p, []string{r.lock}, r.owner, ttl.Milliseconds())
		}
		return nil
	})
	var unknown []*renewal
	for _, r := range renewals {
		if redis.HasErrorPrefix(r.cmd.Err(), "NOSCRIPT") {
			unknown = append(unknown, r)
		}
	}
	if len(unknown) == 0 {
		return
	}
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, r := range unknown {
			r.cmd = renewScript.Eval(ctx, p, []string{r.lock}, r.owner, ttl.Milliseconds())
		}
		return nil
	})
}
