// Package faultproxy is a TCP proxy for tests that breaks the connections it
// carries in the ways a network does.
//
// [Proxy.Swallow], [Proxy.SwallowOnly], [Proxy.Reset] and [Proxy.Cut] are for
// the connections of now; [Proxy.RefuseNew] and [Proxy.HangNew] for those to
// come; [Proxy.Delay] and [Proxy.CutIdle] for all of them.
package faultproxy
