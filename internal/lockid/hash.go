package lockid

import "math/bits"

// Hash computes what the server's hashtextextended(s, 0) computes: Bob
// Jenkins's lookup3 over the bytes, in little-endian order, with two of its
// three words as the result.
func Hash(s string) int64 {
	seed := uint32(0x9e3779b9) + uint32(len(s)) + 3923095
	a, b, c := seed, seed, seed
	for ; len(s) >= 12; s = s[12:] {
		a += word(s[0:4])
		b += word(s[4:8])
		c += word(s[8:12])
		a, b, c = mix(a, b, c)
	}
	a += word(s[:min(4, len(s))])
	if len(s) > 4 {
		b += word(s[4:min(8, len(s))])
	}
	if len(s) > 8 {
		// The low byte of the last word is kept for the length.
		c += word(s[8:]) << 8
	}
	b, c = finish(a, b, c)
	return int64(uint64(b)<<32 | uint64(c))
}

// word reads up to four bytes, the first one lowest.
func word(s string) uint32 {
	var w uint32
	for i := range len(s) {
		w |= uint32(s[i]) << (8 * i)
	}
	return w
}

func mix(a, b, c uint32) (uint32, uint32, uint32) {
	a, c = (a-c)^bits.RotateLeft32(c, 4), c+b
	b, a = (b-a)^bits.RotateLeft32(a, 6), a+c
	c, b = (c-b)^bits.RotateLeft32(b, 8), b+a
	a, c = (a-c)^bits.RotateLeft32(c, 16), c+b
	b, a = (b-a)^bits.RotateLeft32(a, 19), a+c
	c, b = (c-b)^bits.RotateLeft32(b, 4), b+a
	return a, b, c
}

func finish(a, b, c uint32) (uint32, uint32) {
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return b, c
}
